"""Between text and token ids: chat template, end tokens, incremental decoding, stop texts. No torch, no model."""
