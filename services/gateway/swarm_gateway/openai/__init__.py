"""/v1 as OpenAI clients know it: validation, generation, and the shapes of its replies."""
