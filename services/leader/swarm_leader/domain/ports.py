"""What flows ask of the store and the catalog. Implemented in store/ and catalog/, held to one suite."""

from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from swarm_core.manifest import Manifest

from swarm_leader.domain.incidents import IncidentRecord
from swarm_leader.domain.records import (
    ApiTokenRecord,
    FellowRecord,
    JoinTokenRecord,
    LedgerEvent,
    PlacementRecord,
    TokenUsage,
)


class FellowStore(Protocol):
    """Machines that ever joined."""

    async def save(self, fellow: FellowRecord) -> None:
        """Insert or replace by fellow_id; durable when it returns."""

    async def by_identity(self, identity: str) -> FellowRecord | None:
        """The machine with this identity, deleted ones included."""

    async def all(self) -> list[FellowRecord]:
        """Every machine not deleted, by name."""


class TokenStore(Protocol):
    """Tokens of people and programs."""

    async def add(self, token: ApiTokenRecord) -> None:
        """A new token; durable when it returns. Raises Conflict when its id or digest exists."""

    async def revoke(self, token_id: str, now_s: int) -> None:
        """End a token; the first time stands. Durable when it returns."""

    async def count(self, used: Mapping[str, TokenUsage], last_used_s: Mapping[str, int]) -> None:
        """Add to what tokens used, and say when they were last used, by token id; all or nothing, durable."""

    async def remove(self, token_ids: list[str]) -> None:
        """Forget tokens for good."""

    async def all(self) -> list[ApiTokenRecord]:
        """Every token, newest first."""


class SecretFile(Protocol):
    """One secret on the leader's disk, for its own user's eyes only."""

    path: Path

    def read(self) -> str:
        """The secret; "" when there is none that can be read."""

    def write(self, secret: str) -> None:
        """Keep the secret, whole or not at all. Raises DiskFull."""

    def remove(self) -> None:
        """The secret opens nothing any more."""


class JoinTokenStore(Protocol):
    """Tokens by which machines join."""

    async def add(self, token: JoinTokenRecord) -> None:
        """A new join token; durable when it returns."""

    async def by_digest(self, digest: str) -> JoinTokenRecord | None:
        """The token of this digest, whatever became of it."""

    async def use(self, join_token_id: str, now_s: int) -> bool:
        """Take one use. False when it ran out, expired or was revoked: of many who ask at once, as many get it as
        there are uses. Durable when it returns."""

    async def revoke(self, join_token_id: str, now_s: int) -> bool:
        """End it; the first time stands. False when there is none. Durable when it returns."""

    async def prune(self, before_s: int) -> None:
        """Forget those that expired or were revoked before then."""

    async def all(self) -> list[JoinTokenRecord]:
        """Every join token, newest first."""


class Ledger(Protocol):
    """Placements and their log."""

    async def save(self, placement: PlacementRecord, what: str) -> None:
        """Insert or replace the placement and append `what` to its log, in one transaction; durable when it returns."""

    async def latest(self, model_id: str) -> PlacementRecord | None:
        """The newest placement of a model."""

    async def open(self) -> list[PlacementRecord]:
        """The newest placement of every model that is not unloaded, by model id."""

    async def events(self, placement_id: str) -> list[LedgerEvent]:
        """The placement's log, oldest first."""

    async def is_writable(self) -> str:
        """Empty when the database takes a write now; else why not."""


class IncidentStore(Protocol):
    """Faults of placements, and what was done about them."""

    async def save(self, incident: IncidentRecord) -> None:
        """Insert or replace by incident_id; durable when it returns. The newest 1,000 are kept, and every open one."""

    async def open(self) -> list[IncidentRecord]:
        """Those that are not over, oldest first."""

    async def newest(self, limit: int, model_id: str = "", skip: int = 0) -> list[IncidentRecord]:
        """Newest first. model_id: "" is of every model."""


class Catalog(Protocol):
    """Servables on the leader's disk."""

    def refresh(self) -> None:
        """Look at the disk again; cheap when nothing changed."""

    def manifests(self) -> dict[str, Manifest]:
        """Servables that can be served, by model id."""

    def broken(self) -> dict[str, str]:
        """Servables that cannot, by model id (or folder name), with the reason."""

    def get(self, model_id: str) -> Manifest:
        """One servable. Raises ModelNotFound (names what exists) or ServableCorrupt (with the reason)."""

    def manifest_json(self, model_id: str) -> bytes:
        """Its manifest as it lies on disk."""

    def manifest_sha256(self, model_id: str) -> str:
        """The SHA-256 of those bytes, hex; kept, not computed anew."""

    def folder(self, model_id: str) -> Path:
        """Its folder."""
