"""Linear layers in few bits: each format, and how one is chosen and made while weights are read."""
