"""Idempotency-Key: one generation for each caller and key, however often it is asked for."""
