"""/v1/chat/completions: what it reads, and the documents and chunks of its replies."""
