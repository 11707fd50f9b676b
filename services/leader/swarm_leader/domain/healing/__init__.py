"""What to do about a ring that broke: which stages are lost, and who holds them next. Pure."""
