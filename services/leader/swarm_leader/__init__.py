"""The control plane: decides, records, dispatches. Never imports torch."""
