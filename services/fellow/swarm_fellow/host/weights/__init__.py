"""Model bytes on this machine: the cache, where they come from, and bringing what a stage lacks."""
