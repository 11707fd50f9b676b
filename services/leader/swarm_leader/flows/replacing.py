"""Who is to hold a lost stage, among the fellows as they are now, and bringing it there. Judges no ring."""

import asyncio
from collections.abc import Collection, Sequence

import structlog
from swarm_core.errors import SwarmError

from swarm_leader.config import LeaderConfig
from swarm_leader.domain import ledger as rules
from swarm_leader.domain.healing.choose import Candidate, Choice, Chosen, Way, choose
from swarm_leader.domain.healing.refit import Refit, make_refit
from swarm_leader.domain.ports import Catalog
from swarm_leader.domain.records import PlacementRecord, StageRecord
from swarm_leader.flows.board import Board, Placement, StageLive
from swarm_leader.flows.ending import Ending
from swarm_leader.flows.registry import Registry
from swarm_leader.flows.room import fleet_facts
from swarm_leader.flows.stage_load import StageLoading
from swarm_leader.flows.wire import Wiring
from swarm_leader.flows.wishes import resolve_model

log = structlog.get_logger()
COVER_LOOK_S = 0.1  # between two looks whether a load has become needless


class Replacing:
    """Finds other fellows for stages."""

    def __init__(
        self,
        catalog: Catalog,
        board: Board,
        registry: Registry,
        stages: StageLoading,
        wiring: Wiring,
        ending: Ending,
        config: LeaderConfig,
    ) -> None:
        self._catalog = catalog
        self._board = board
        self._registry = registry
        self._stages = stages
        self._wiring = wiring
        self._ending = ending
        self._config = config
        self._ends: set[asyncio.Task[None]] = set()  # of loads that were given up

    def choose(
        self,
        placement: Placement,
        lost: Sequence[int],
        refused: Collection[tuple[int, str]] = (),
        silent: Collection[str] = (),
    ) -> Chosen:
        """Who holds each lost stage next. refused: see choose. silent: fellows that are not to be counted on."""
        record = placement.record
        candidates = []
        for facts in fleet_facts(self._registry, self._board, record.model_id):
            fellow = self._registry.get(facts.fellow_id)
            if fellow is None or facts.fellow_id in silent or not self.can_prove_itself(record, facts.fellow_id):
                continue
            covers = {index: one.is_hot for (key, index), one in fellow.covers.items() if key == record.placement_id}
            candidates.append(Candidate(facts, fellow.record.draining, covers))
        return choose(record, lost, candidates, self.refit_of(record), {*refused, *self._leftovers(record)})

    async def bring(self, placement: Placement, choice: Choice) -> None:
        """Have a fellow hold its new stage, as the record says already. Raises LoadFailed, FellowLost, StaleEpoch.

        A load is given up once a hot cover of its stage becomes ready elsewhere, and then nothing is held: whoever
        looks again finds the cover.
        """
        placement_id, index = placement.record.placement_id, choice.stage.stage_index
        fellow = self._registry.get(choice.stage.fellow_id)
        if choice.way is Way.HOT:
            placement.stages[index] = self._live_of_cover(placement, choice)
            return
        placement.stages[index] = StageLive()
        if fellow is not None and placement_id in fellow.stages:
            await self._ending.unload_stage(fellow.fellow_id, placement_id)  # of a process that does not answer
        stage = placement.record.stages[index]
        loaded = await self._load_unless_covered(placement, stage)
        if loaded is not None:
            await self._stages.keep(placement, stage, loaded)

    async def prepare(self, placement: Placement, choice: Choice) -> tuple[StageLive, StageRecord]:
        """Have a fellow hold a stage that is still another one's. Returns it as it is held. Raises as bring does."""
        if choice.way is Way.HOT:
            return self._live_of_cover(placement, choice), choice.stage
        live = StageLive()
        loaded = await self._stages.send(placement, choice.stage, live)
        record = rules.move(placement.record, {choice.stage.stage_index: choice.stage}, "")
        held = rules.set_loaded(record, choice.stage.stage_index, loaded, choice.fellow_name)
        return live, held.stages[choice.stage.stage_index]

    async def _load_unless_covered(self, placement: Placement, stage: StageRecord) -> rules.LoadedStage | None:
        """None: it was given up for a cover. One that stood before is none to wait for: it was not chosen."""
        record, index = placement.record, stage.stage_index
        known = self._hot_holders(record, index)
        sending = asyncio.create_task(self._stages.send(placement, stage, placement.stages[index]))
        try:
            while True:
                await asyncio.wait({sending}, timeout=COVER_LOOK_S)
                if sending.done():
                    return sending.result()
                if self._hot_holders(record, index) - known:
                    break
        finally:
            sending.cancel()
        log.info("a load is given up: a hot cover is ready before it", model=record.model_id, stage=index)
        # Beside us: ending a process that is busy loading may take longer than the cover takes to serve.
        ending = asyncio.create_task(self._ending.unload_stage(stage.fellow_id, record.placement_id))
        self._ends.add(ending)
        ending.add_done_callback(self._ends.discard)
        return None

    def _hot_holders(self, record: PlacementRecord, stage_index: int) -> set[str]:
        """Fellows that hold this stage as a hot cover, and may have it."""
        key = (record.placement_id, stage_index)
        return {
            fellow.fellow_id
            for fellow in self._registry.all()
            if (cover := fellow.covers.get(key)) is not None
            and cover.is_hot
            and not fellow.record.draining
            and self._registry.is_connected(fellow.fellow_id)
            and self.can_prove_itself(record, fellow.fellow_id)
        }

    def _live_of_cover(self, placement: Placement, choice: Choice) -> StageLive:
        """What is known of a stage that is held as a hot cover."""
        fellow = self._registry.get(choice.stage.fellow_id)
        key = (placement.record.placement_id, choice.stage.stage_index)
        cover = fellow.covers.get(key) if fellow is not None else None
        live = StageLive(loaded_epoch=placement.record.epoch)
        if cover is not None:
            live.ring_addresses, live.kv_tokens_measured = cover.ring_addresses, cover.kv_tokens_measured or None
        return live

    def refit_of(self, record: PlacementRecord) -> Refit | None:
        """What the ring is made of; None when the catalog does not have it any more, or has another by that name."""
        again = rules.ask_again(record)
        try:
            wish = resolve_model(self._catalog, record.model_id, again)
            if wish.weights_sha256 != record.manifest_sha256:
                return None
            first = self._registry.get(record.stages[0].fellow_id)
            serve = first.capabilities.serve if first is not None else None
            chunk = serve.prefill_chunk_tokens if serve is not None else 0
            return make_refit(record, wish.weights, wish.adapters, again, self._config.serve_defaults, chunk)
        except SwarmError as error:
            log.warning("the weights of a ring are not known", model=record.model_id, why=error.message)
            return None

    def can_prove_itself(self, record: PlacementRecord, fellow_id: str) -> bool:
        """Whether the ring may have it, as far as proofs go."""
        try:
            self._wiring.check([fellow_id] * min(2, len(record.stages)))
        except SwarmError:
            return False
        return True

    def _leftovers(self, record: PlacementRecord) -> list[tuple[int, str]]:
        """Fellows that still end a stage which they lost: until they did, they can hold no other of this placement."""
        holders = {stage.fellow_id for stage in record.stages}
        return [
            (stage.stage_index, fellow.fellow_id)
            for fellow in self._registry.all()
            if record.placement_id in fellow.stages and fellow.fellow_id not in holders
            for stage in record.stages
        ]
