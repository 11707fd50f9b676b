"""Tensors and hashes as bytes. numpy only."""
