"""What flows ask of the store and the catalog. Implemented in store/ and catalog/, held to one suite."""

from pathlib import Path
from typing import Protocol

from swarm_core.manifest import Manifest

from swarm_leader.domain.records import FellowRecord, LedgerEvent, PlacementRecord


class FellowStore(Protocol):
    """Machines that ever joined."""

    async def save(self, fellow: FellowRecord) -> None:
        """Insert or replace by fellow_id; durable when it returns."""

    async def by_identity(self, identity: str) -> FellowRecord | None:
        """The machine with this identity, deleted ones included."""

    async def all(self) -> list[FellowRecord]:
        """Every machine not deleted, by name."""


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
