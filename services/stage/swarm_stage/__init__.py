"""One loaded stage of one model: the only process that imports torch."""
