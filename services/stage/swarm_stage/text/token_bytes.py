"""What every token of a vocabulary is as bytes. Pure: a tokenizer's own description in, a list out."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

_FALLBACK = re.compile(r"<0x([0-9A-Fa-f]{2})>")


def token_bytes(pieces: Sequence[str | None], added: Mapping[int, str], decoder: Any) -> list[bytes]:
    """Bytes of each id. pieces: the vocabulary's own spelling, None where an id has none. added: tokens as they read.

    decoder: the "decoder" of tokenizer.json. Byte-level vocabularies spell bytes as letters; the others spell a space
    as U+2581 and, with fallback, a byte as <0x41>.
    """
    kinds = _kinds(decoder)
    table = _letter_bytes() if "ByteLevel" in kinds else None
    has_fallback = "ByteFallback" in kinds
    found = []
    for token, piece in enumerate(pieces):
        if token in added:
            found.append(added[token].encode())
        elif piece is None:
            found.append(b"")
        elif table is not None:
            found.append(bytes(table[letter] for letter in piece if letter in table))
        elif has_fallback and (byte := _FALLBACK.fullmatch(piece)):
            found.append(bytes([int(byte[1], 16)]))
        else:
            found.append(piece.replace("\u2581", " ").encode("utf-8", "replace"))
    return found


def _kinds(decoder: Any) -> set[str]:
    """The types of a decoder and of those it is a sequence of."""
    if not isinstance(decoder, Mapping):
        return set()
    inner = decoder.get("decoders")
    return {str(decoder.get("type"))}.union(*(_kinds(one) for one in inner if inner) if isinstance(inner, list) else [])


def _letter_bytes() -> dict[str, int]:
    """The letters of byte-level vocabularies: printable bytes of Latin-1 are themselves, the others follow U+0100."""
    own = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in own]
    return {chr(byte): byte for byte in own} | {chr(0x100 + place): byte for place, byte in enumerate(others)}
