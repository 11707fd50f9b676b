"""A fellow's decisions: numbers in, choice out. No clock, no I/O, no protobuf."""
