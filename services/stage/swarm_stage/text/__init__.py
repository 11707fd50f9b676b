"""Between text and token ids: templates, shapes of replies, incremental decoding, stop texts. No torch, no model."""
