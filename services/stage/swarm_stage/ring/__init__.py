"""Links to the neighbouring stages: direct or through the relay, one pair per epoch."""
