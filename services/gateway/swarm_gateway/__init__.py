"""HTTP for OpenAI clients and browsers; stateless, over one channel to the leader. Never imports torch."""
