"""What an import reads: checkpoints, exports with shards and LoRA adapters, trusted in nothing. Writes nothing."""
