"""LoRA adapters: read from their files, beside the linear layers they change, or merged into them."""
