"""A stage process without a model, for tests of the fellow: it speaks stage.v1 and does what the prompt says."""
