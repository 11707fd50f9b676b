"""What happens in which order on a fellow."""
