"""`swarm bench`: load on a running swarm through its OpenAI endpoint, and what came of it."""
