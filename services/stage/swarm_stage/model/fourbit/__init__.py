"""Which way the 4-bit products of a device go, by their measured times."""
