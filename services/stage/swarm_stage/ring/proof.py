"""Proofs of a link: both ends hold its secret, and mean this ring, this epoch and these two stages. No I/O."""

import hashlib
import hmac

from silentswarm.ring.v1 import ring_pb2

_HELLO = b"silentswarm ring hello v1"
_WELCOME = b"silentswarm ring welcome v1"


def hello_proof(secret: bytes, hello: ring_pb2.Hello) -> bytes:
    """What the dialling stage shows: HMAC-SHA256 over everything else in its hello."""
    fields = (hello.wire_version, hello.placement_id, hello.epoch, hello.from_stage, hello.to_stage)
    words = [str(field).encode() for field in fields]
    # Each with its length, so that no two hellos read the same.
    text = _HELLO + b"".join(len(word).to_bytes(4, "big") + word for word in words)
    return hmac.new(secret, text, hashlib.sha256).digest()


def welcome_proof(secret: bytes, hello_proof: bytes) -> bytes:
    """What the listening stage answers: it holds the secret too, and heard this very hello."""
    return hmac.new(secret, _WELCOME + hello_proof, hashlib.sha256).digest()


def is_equal(presented: bytes, expected: bytes) -> bool:
    """In a time that says nothing about how near a wrong one is."""
    return hmac.compare_digest(presented, expected)
