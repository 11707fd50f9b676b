"""Other checkpoint formats to the Hugging Face layout. Runs as its own process, before anything is served."""
