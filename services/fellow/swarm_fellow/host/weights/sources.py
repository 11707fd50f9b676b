"""What a source of model bytes is asked and answers: the leader, a hub, folders of this machine. Fetches nothing."""

from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass
from typing import Protocol

from swarm_core.manifest import Manifest


@dataclass(frozen=True)
class ModelBytes:
    """Whose bytes: a model of the leader's catalog, with the manifest they are checked against and its SHA-256."""

    model_id: str
    manifest_sha256: str
    manifest: Manifest


@dataclass(frozen=True)
class Wanted:
    """One item of a fetch: a tensor's or a file's name and the first byte wanted."""

    name: str
    is_tensor: bool
    offset: int


@dataclass(frozen=True)
class Chunk:
    """Some bytes of the item at this position of the request."""

    item: int
    offset: int
    payload: bytes


class Source(Protocol):
    """Where bytes come from. Nothing it says is believed: every item is hashed before it gets its name.

    name: for people. crosses_network: whether its bytes count as fetched. tries_max: failures in a row, without a byte
    in between, after which it is given up. Every wait inside has a deadline.
    """

    name: str
    crosses_network: bool
    tries_max: int

    def fetch(self, model: ModelBytes, wanted: Sequence[Wanted]) -> AsyncGenerator[Chunk, None]:
        """The bytes asked for, each item's in order. Raises SwarmError."""

    def may_ask_again(self, model: ModelBytes, name: str, mismatches: int) -> bool:
        """Whether to ask it once more for an item whose bytes were wrong that many times."""


class NearSource(Source, Protocol):
    """A source of tensors that is asked before the leader."""

    async def tensors_here(self, model: ModelBytes, names: Sequence[str]) -> set[str]:
        """Which of these tensors it may have. Raises SwarmError when it cannot tell now."""


class LeaderSource(Source, Protocol):
    """The source of last resort, and the only one of manifests."""

    async def manifest(self, model_id: str) -> bytes:
        """The manifest's JSON. Raises SwarmError."""
