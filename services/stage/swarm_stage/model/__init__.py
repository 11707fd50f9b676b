"""A stage's part of the model: building it, running it, its KV cache, drawing tokens. No sessions, no wire."""
