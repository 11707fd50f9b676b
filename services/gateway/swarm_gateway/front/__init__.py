"""What stands before every handler: who asks, from where, how much at once, and how failures are told."""
