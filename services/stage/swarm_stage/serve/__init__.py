"""The stage process around the engine: what the fellow asks of it, over a Unix socket."""
