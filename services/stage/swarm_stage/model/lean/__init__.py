"""Llama-like slices by our own short chain of products."""
