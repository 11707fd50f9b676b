"""This machine: its hardware, identity, disk cache and child processes."""
