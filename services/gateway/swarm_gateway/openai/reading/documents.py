"""A body -> the JSON object in it, or a refusal. Bounded in depth and in how many values it holds; knows no field.

Parsing holds the interpreter for as long as it takes, in whichever thread it runs. So a large body is counted first, in
short pieces, and one with more values than any request needs is refused before it is built.
"""

import asyncio
import json
import math
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from pydantic_core import from_json

from swarm_gateway.problems import HttpProblem, bad_request

VALUES_MAX = 500_000  # prompts of token ids have many; as many take about 20 ms
NESTED_MAX = 50_000  # objects and arrays; as many take about 20 ms
KEYS_MAX = 100_000  # in all objects together; as many take about 50 ms
# Below this a body is read where it is: a hop to a thread costs as much as reading it.
AT_ONCE_BYTES = 32 * 2**10
_PIECE_BYTES = 64 * 2**10
T = TypeVar("T")


async def read_apart(read: Callable[[bytes], T], body: bytes) -> T:
    """read(body), in a thread when the body is large. Raises what `read` raises."""
    return read(body) if len(body) <= AT_ONCE_BYTES else await asyncio.to_thread(read, body)


def read_document(body: bytes) -> dict[str, Any]:
    """The object in a body.

    Raises HttpProblem 400, code "invalid_json": no JSON, no object, numbers that are none or beyond a float, halves of
    characters, a key twice in one object, deeper than 200 levels, or more than VALUES_MAX, KEYS_MAX or NESTED_MAX.
    """
    _check_counts(body)
    try:
        document = from_json(body, allow_inf_nan=False)
        json.loads(body, object_pairs_hook=_refuse_twice, parse_float=_refuse_infinite)
    except (ValueError, RecursionError) as error:
        raise _refused(f"the body is not valid JSON: {error}") from None
    if not isinstance(document, dict):
        raise _refused("the body must be a JSON object")
    return document


def _check_counts(body: bytes) -> None:
    """Raises HttpProblem when there is more in it than is read. Costs nothing where there is little."""
    if not _is_too_much(*_counts(body)):
        return
    values = keys = nested = 0
    for structure in _outside_texts(body):
        more_values, more_keys, more_nested = _counts(structure)
        values, keys, nested = values + more_values, keys + more_keys, nested + more_nested
        if _is_too_much(values, keys, nested):
            most = f"{VALUES_MAX:,} values, {KEYS_MAX:,} keys or {NESTED_MAX:,} objects and arrays"
            raise _refused(f"the body is not valid JSON here: it has more than {most}")


def _counts(structure: bytes) -> tuple[int, int, int]:
    """How many values but one, keys, and objects and arrays there are, when no text is in it; else at most so many."""
    return structure.count(b","), structure.count(b":"), structure.count(b"[") + structure.count(b"{")


def _is_too_much(values: int, keys: int, nested: int) -> bool:
    return values > VALUES_MAX or keys > KEYS_MAX or nested > NESTED_MAX


def _outside_texts(body: bytes) -> Iterator[bytes]:
    """A body without its texts, piece by piece, so that other threads get their turn in between."""
    at, in_text = 0, False
    while at < len(body):
        piece = body[at : at + _PIECE_BYTES]
        backslashes = len(piece) - len(piece.rstrip(b"\\"))
        if backslashes % 2 and len(piece) > 1:  # an escape is never cut
            piece = piece[:-1]
        at += len(piece)
        parts = piece.replace(b"\\\\", b"").replace(b'\\"', b"").split(b'"')
        yield b"".join(parts[1 if in_text else 0 :: 2])
        in_text ^= len(parts) % 2 == 0


def _refuse_twice(pairs: list[tuple[str, Any]]) -> None:
    if len(pairs) > 1 and len({name for name, _ in pairs}) < len(pairs):
        seen: set[str] = set()
        twice = next(name for name, _ in pairs if name in seen or seen.add(name))  # type: ignore[func-returns-value]
        raise ValueError(f"the key {twice[:50]!r} is twice in one object")


def _refuse_infinite(digits: str) -> float:
    number = float(digits)
    if math.isinf(number):
        raise ValueError(f"{digits[:20]} is beyond every number")
    return number


def _refused(words: str) -> HttpProblem:
    return bad_request(words, code="invalid_json")
