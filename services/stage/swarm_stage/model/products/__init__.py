"""Matrix products of few rows, however the weights are held."""
