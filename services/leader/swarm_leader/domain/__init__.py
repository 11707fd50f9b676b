"""Decisions without I/O: the standard library and swarm_core only."""
