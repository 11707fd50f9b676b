"""Forwards frames between stages that cannot reach each other. Knows channels and epochs, no models."""
