"""Calls to the leader and to stages, and the translation between our words and the contracts."""
