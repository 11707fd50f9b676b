"""What requests hold: bodies as documents, and the fields that several endpoints share. Makes nothing of them."""
