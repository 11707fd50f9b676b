"""A leader, put together from its parts and served. Decides nothing; reads no environment."""
