"""Has a stage that is cut off loaded elsewhere while its ring is still tried, and hands it over. Judges no ring."""

import asyncio
from collections.abc import Collection, Mapping

from swarm_core.errors import FellowLost, SwarmError

from swarm_leader.domain.healing.choose import Choice, Way
from swarm_leader.domain.healing.words import say_cut_off
from swarm_leader.domain.records import StageRecord
from swarm_leader.flows.board import StageLive
from swarm_leader.flows.ending import Ending
from swarm_leader.flows.handing_over import Handed, HandingOver
from swarm_leader.flows.healing_case import Arrival, Case
from swarm_leader.flows.incidents import Incidents
from swarm_leader.flows.registry import Registry
from swarm_leader.flows.replacing import Replacing
from swarm_leader.flows.tasks import TaskSet


class Arrivals:
    """Loads stages of a ring beside it: a line that is mended meanwhile costs no move."""

    def __init__(
        self,
        registry: Registry,
        replacing: Replacing,
        handing_over: HandingOver,
        ending: Ending,
        incidents: Incidents,
        tasks: TaskSet,
    ) -> None:
        self._registry = registry
        self._replacing = replacing
        self._handing_over = handing_over
        self._ending = ending
        self._incidents = incidents
        self._tasks = tasks

    def choose(self, case: Case, stages: Collection[int]) -> Mapping[int, Choice]:
        """Who outside of the ring can hold these stages, and holds none of it yet."""
        asked = [index for index in stages if index not in case.arrivals]
        if not asked:
            return {}
        taken = {stage.fellow_id for stage in case.placement.record.stages}
        taken |= {one.choice.stage.fellow_id for one in case.arrivals.values()}
        pairs = {(index, fellow_id) for index in asked for fellow_id in taken}
        return self._replacing.choose(case.placement, asked, case.refused | pairs).choices

    async def begin(self, case: Case, choices: Mapping[int, Choice]) -> None:
        """Have these fellows load these stages; what comes of it is for `settle`."""
        for index, choice in choices.items():
            case.placement.arriving[index] = choice.stage.fellow_id
            case.arrivals[index] = Arrival(choice, asyncio.ensure_future(self._load(case, choice)))
            holder = case.placement.record.stages[index]
            said = say_cut_off(holder, self._registry.name_of(holder.fellow_id))
            await self._incidents.note(case, "moving", f"{said}: {choice.fellow_name} loads it meanwhile")

    async def wait(self, case: Case, wait_s: float) -> None:
        """Until one of them is loaded, or is not; this long at most."""
        await asyncio.wait(
            {one.loading for one in case.arrivals.values()}, timeout=wait_s, return_when=asyncio.FIRST_COMPLETED
        )

    async def settle(self, case: Case) -> None:
        """Hand over what is loaded by now. Raises StaleEpoch."""
        for index, arrival in list(case.arrivals.items()):
            if not arrival.loading.done():
                continue
            del case.arrivals[index]
            fellow_id, name = arrival.choice.stage.fellow_id, arrival.choice.fellow_name
            try:
                live, stage = arrival.loading.result()
            except SwarmError as error:
                case.placement.arriving.pop(index, None)
                if not isinstance(error, FellowLost):
                    case.refused.add((index, fellow_id))
                await self._incidents.note(case, "moving", error.message)
                continue
            await self._hand_over(case, Handed(stage, live, name))

    def call_off(self, case: Case) -> "list[asyncio.Task[None]]":
        """Nothing of it is needed any more. Returns what ends the stages that are loaded or half loaded."""
        placement_id, ends = case.placement.record.placement_id, []
        for index, arrival in case.arrivals.items():
            arrival.loading.cancel()
            fellow_id = arrival.choice.stage.fellow_id
            case.placement.arriving.pop(index, None)
            if arrival.choice.way is not Way.HOT and self._registry.is_connected(fellow_id):
                ending = self._ending.unload_stage(fellow_id, placement_id)
                ends.append(self._tasks.start(ending, "unload what is not needed"))
        case.arrivals.clear()
        return ends

    async def _load(self, case: Case, choice: Choice) -> tuple[StageLive, StageRecord]:
        return await self._replacing.prepare(case.placement, choice)

    async def _hand_over(self, case: Case, handed: Handed) -> None:
        """The fellow that loaded it owns it from now on, and the one that is cut off ends it."""
        placement, index = case.placement, handed.stage.stage_index
        old = placement.record.stages[index]
        case.refused.add((index, old.fellow_id))
        case.cut_off.add(index)
        case.lost[index] = say_cut_off(old, self._registry.name_of(old.fellow_id))
        case.tries = case.tries.moved()
        case.moves += 1
        await self._handing_over.hand_over(case, handed)
        case.cut_off.discard(index)
        fellow = self._registry.get(old.fellow_id)
        if fellow is not None:
            fellow.drop_stage(placement.record.placement_id)
            ending = self._ending.unload_stage(old.fellow_id, placement.record.placement_id)
            self._tasks.start(ending, "unload what went elsewhere")
