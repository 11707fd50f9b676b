"""Tensors, codes and sets as bytes. numpy only."""
