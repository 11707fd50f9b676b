"""Where every model's serving stands, live: ledger record, progress, addresses. Writes the ledger; sends no signals."""

import asyncio
from collections import defaultdict
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field

import structlog
from swarm_core.errors import DiskFull, StaleEpoch, SwarmError, Unavailable

from swarm_leader.domain import ledger as rules
from swarm_leader.domain.holding import AdapterUse
from swarm_leader.domain.planning.plan import Forecast
from swarm_leader.domain.ports import Ledger
from swarm_leader.domain.records import PlacementRecord, PlacementState

log = structlog.get_logger()
WRITE_AGAIN_S = 2.0


@dataclass
class StageLive:
    """What is known of one stage beyond its record. done and total: of the step, in its unit; total 0 is unknown.

    kv_tokens_measured: KV positions that fit beside it after its load; None when its fellow does not say. loaded_epoch:
    when its LOAD was sent; what is heard of a process of an older epoch is about another one.
    """

    step: str = ""
    done: int = 0
    total: int = 0
    ring_addresses: tuple[str, ...] = ()
    fetched_bytes: int | None = None
    kv_tokens_measured: int | None = None
    loaded_epoch: int = 0


@dataclass
class Placement:
    """One placement, live. task: the load or rewire that runs now.

    is_waking: loaded because of a request for an idle model. broken_epoch: newest epoch a stage called broken.
    is_healing: something brings it back, under this placement or the model's next one; requests and replies wait,
    whatever the state says meanwhile. is_unwritten: its record is newer than the ledger's. arriving: fellows that load
    a stage they do not own yet. wired_in_s: how long its links took to come up, last. forecast: what its plan
    predicted; nothing after the leader restarted.
    """

    record: PlacementRecord
    stages: dict[int, StageLive] = field(default_factory=lambda: defaultdict(StageLive))
    task: "asyncio.Task[None] | None" = None
    is_waking: bool = False
    broken_epoch: int = 0
    is_healing: bool = False
    is_unwritten: bool = False
    arriving: dict[int, str] = field(default_factory=dict)
    probe_lap_ms: float | None = None
    wired_in_s: float | None = None
    forecast: Forecast = field(default_factory=Forecast)

    @property
    def model_id(self) -> str:
        """Its model."""
        return self.record.model_id

    @property
    def state(self) -> PlacementState:
        """Where it stands."""
        return self.record.state

    @property
    def told_state(self) -> PlacementState:
        """Where it stands, as people are told: what failed and is being loaded anew recovers."""
        is_coming_back = self.is_healing and self.record.state is PlacementState.FAILED
        return PlacementState.RECOVERING if is_coming_back else self.record.state

    def reads(self, model_id: str) -> bool:
        """Whether its stages are made of this model's files: its own, its base's or an adapter's."""
        record = self.record
        return model_id in (record.model_id, record.weights_model_id, *(one.model_id for one in record.adapters))


class Board:
    """The newest placement of each model."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._placements: dict[str, Placement] = {}
        self._locks: dict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._versions: dict[str, int] = defaultdict(int)
        self._changed: dict[str, asyncio.Event] = {}

    def get(self, model_id: str) -> Placement | None:
        """A model's placement; None when there never was one."""
        return self._placements.get(model_id)

    def all(self) -> list[Placement]:
        """By model id."""
        return [self._placements[model_id] for model_id in sorted(self._placements)]

    def by_id(self, placement_id: str) -> Placement | None:
        """The placement of this id, if it is still its model's newest."""
        return next((one for one in self._placements.values() if one.record.placement_id == placement_id), None)

    def serving_of(self, model_id: str) -> tuple[Placement, str] | None:
        """The placement that answers requests for a model, and the adapter they choose there ("" is none).

        Ready ones come first; then a placement of that very model wins over a base that holds it as an adapter. A base
        that failed or was unloaded holds nothing. None when nothing serves it, or ever did.
        """
        own = self._placements.get(model_id)
        candidates = [(own, "")] if own is not None else []
        candidates += [(one, model_id) for one in self.all() if _is_chosen_in(one, model_id)]
        return min(candidates, key=lambda candidate: _distance(candidate[0]), default=None)

    def holding(self, fellow_id: str) -> list[Placement]:
        """Placements that have a stage in this fellow's memory."""
        return [
            one
            for one in self.all()
            if one.state.holds_memory and any(stage.fellow_id == fellow_id for stage in one.record.stages)
        ]

    def arriving(self, fellow_id: str) -> list[Placement]:
        """Placements of which this fellow loads a stage that is still another one's."""
        return [one for one in self.all() if one.state.holds_memory and fellow_id in one.arriving.values()]

    def is_wanted(self, placement_id: str, fellow_id: str, stage_index: int) -> bool:
        """Whether a fellow should hold this very stage."""
        placement = self.by_id(placement_id)
        if placement is None or not placement.state.holds_memory or stage_index >= len(placement.record.stages):
            return False
        return fellow_id in (placement.record.stages[stage_index].fellow_id, placement.arriving.get(stage_index))

    def is_current(self, placement: Placement) -> bool:
        """Whether it is its model's newest."""
        return self._placements.get(placement.model_id) is placement

    def lock(self, model_id: str) -> asyncio.Lock:
        """Held while one decides whether a model may get a new placement."""
        return self._locks[model_id]

    def adopt(self, record: PlacementRecord) -> Placement:
        """Show a placement that the ledger has already."""
        placement = Placement(record)
        self._placements[record.model_id] = placement
        self.notify(record.model_id)
        return placement

    async def next_epoch(self, model_id: str) -> int:
        """One beyond every epoch the model had, in this run of the leader and before."""
        latest = await self._ledger.latest(model_id)
        shown = self._placements.get(model_id)
        return 1 + max(latest.epoch if latest else 0, shown.record.epoch if shown else 0)

    async def begin(self, record: PlacementRecord, what: str) -> Placement:
        """Record a placement as its model's newest, and show it; durable when it returns."""
        await self._ledger.save(record, what)
        return self.adopt(record)

    async def save(self, placement: Placement, change: Callable[[PlacementRecord], PlacementRecord], what: str) -> None:
        """Change the record; durable, and only then shown. Raises StaleEpoch when the placement was overtaken.

        While it heals, a database that cannot be written to stops nothing: it is written later. A leader that starts
        before then finds stages of epochs it does not know, and has them loaded again.
        """
        async with self._locks[placement.record.placement_id]:
            changed = change(placement.record)
            if not self.is_current(placement):
                raise StaleEpoch(f"placement {placement.record.placement_id} is over")
            rules.check_follows(placement.record, changed)
            try:
                await self._ledger.save(changed, what)
                placement.is_unwritten = False
            except (DiskFull, Unavailable) as error:
                if not placement.is_healing:
                    raise
                log.error("a ring is healed though it cannot be recorded", model=placement.model_id, why=error.message)
                placement.is_unwritten = True
            self.show(placement, changed)
        if not placement.state.holds_memory:
            self._locks.pop(placement.record.placement_id, None)

    async def write_missed_forever(self) -> None:
        """Until cancelled: write what could not be written while it healed."""
        while True:
            await asyncio.sleep(WRITE_AGAIN_S)
            for placement in self.all():
                if placement.is_unwritten:
                    with suppress(SwarmError):  # overtaken, or still no room: the next save, or the next time
                        await self.save(placement, lambda record: record, "recorded late")

    def show(self, placement: Placement, record: PlacementRecord) -> None:
        """Show a changed record without writing it."""
        placement.record = record
        self.notify(placement.model_id)

    def notify(self, model_id: str) -> None:
        """Something a watcher may want to see changed."""
        self._versions[model_id] += 1
        event = self._changed.pop(model_id, None)
        if event is not None:
            event.set()

    def version(self, model_id: str) -> int:
        """Grows with every change; hand it to wait_change."""
        return self._versions.get(model_id, 0)

    async def wait_change(self, model_id: str, seen_version: int) -> int:
        """Return the version once it is not the seen one. The caller has the deadline."""
        while self.version(model_id) == seen_version:
            await self._changed.setdefault(model_id, asyncio.Event()).wait()
        return self.version(model_id)

    def state_of(self, model_id: str) -> str:
        """A word for lists: "ready", "loading", ... of what answers for a model; "unloaded" when nothing ever did."""
        serving = self.serving_of(model_id)
        return serving[0].told_state.value if serving else PlacementState.UNLOADED.value


_NEAREST_FIRST = (
    PlacementState.READY,
    PlacementState.WIRING,
    PlacementState.RECOVERING,
    PlacementState.LOADING,
    PlacementState.IDLE,
)


def _distance(placement: Placement) -> int:
    """How far from serving a placement is; what is over is the farthest."""
    far = len(_NEAREST_FIRST)
    return _NEAREST_FIRST.index(placement.state) if placement.state in _NEAREST_FIRST else far


def _is_chosen_in(placement: Placement, adapter: str) -> bool:
    """Whether sessions of a placement can choose an adapter, now or once it serves again."""
    chosen = {one.model_id for one in placement.record.adapters if one.use is AdapterUse.CHOSEN}
    return adapter in chosen and placement.state in _NEAREST_FIRST
