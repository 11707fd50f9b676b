"""Brings a ring back that broke: level-triggered, from its record and from what fellows hold. Judges no event."""

import asyncio
from collections.abc import Coroutine, Mapping
from dataclasses import dataclass, replace
from typing import Any

import structlog
from swarm_core.clock import Clock
from swarm_core.errors import (
    FellowLost,
    LoadFailed,
    ModelNotReady,
    NotEnoughMemory,
    StageFailed,
    StaleEpoch,
    SwarmError,
)

from swarm_leader.domain import ledger as rules
from swarm_leader.domain.healing.choose import Choice, Way
from swarm_leader.domain.healing.judge import Verdict, judge
from swarm_leader.domain.healing.pace import CRASHES_MAX, CRASHES_S, CrashCount, RewirePace
from swarm_leader.domain.healing.words import (
    join_words,
    say_bringing,
    say_fix,
    say_lost,
    say_moving,
    shorten,
    tell_lost,
)
from swarm_leader.domain.incidents import IncidentKind, IncidentRecord, Outcome
from swarm_leader.domain.records import PlacementState, Route, StageRecord
from swarm_leader.flows.board import Board, Placement
from swarm_leader.flows.ending import Ending
from swarm_leader.flows.examining import Examined, Examining
from swarm_leader.flows.handing_over import HandingOver
from swarm_leader.flows.healing_case import Case, Incidents
from swarm_leader.flows.load import Loading
from swarm_leader.flows.loading_anew import LoadingAnew
from swarm_leader.flows.registry import Registry
from swarm_leader.flows.replacing import Replacing
from swarm_leader.flows.stage_load import StageLoading
from swarm_leader.flows.tasks import TaskSet
from swarm_leader.flows.wire import Keeping, Wiring

log = structlog.get_logger()
MOVES_MAX = 12  # rounds of one healing in which stages are brought to fellows
REWIRES_MIN = 3  # tries, however long each of them takes
PROBE_S = 3.0  # a ring that stood while the leader was away answers at once
GRACE_S = 1.0  # somebody is always waited for this long, however long ago the lost fellow was heard of


@dataclass(frozen=True)
class HealLimits:
    """wait_s: how long somebody to hold a stage is waited for. poll_s: how often what nobody reports is looked at.

    rewire_waits_s: before each try to wire a ring whose stages are all there.
    """

    wait_s: float = 8.0
    poll_s: float = 0.5
    rewire_waits_s: tuple[float, ...] = (0.0, 0.5, 1.0, 2.0, 2.0)  # a line that is down for a moment is back by then


class Healing:
    """Heals rings. One task a placement; what is heard meanwhile makes it look again."""

    def __init__(
        self,
        board: Board,
        registry: Registry,
        loading: Loading,
        stages: StageLoading,
        wiring: Wiring,
        ending: Ending,
        tasks: TaskSet,
        clock: Clock,
        examining: Examining,
        replacing: Replacing,
        incidents: Incidents,
        limits: HealLimits,
    ) -> None:
        self._board = board
        self._registry = registry
        self._loading = loading
        self._stages = stages
        self._wiring = wiring
        self._ending = ending
        self._tasks = tasks
        self._clock = clock
        self._examining = examining
        self._replacing = replacing
        self._incidents = incidents
        self._limits = limits
        self._anew = LoadingAnew(board, loading, ending, incidents)
        self._handing_over = HandingOver(
            board, registry, replacing, ending, tasks, clock, incidents, self._start, self._heal
        )
        self._cases: dict[str, Case] = {}
        self._waiting: dict[str, Case] = {}  # given up until another fellow joins, by model id
        self._crashes = CrashCount()
        self._pace = RewirePace()
        loading.when_lost = self._take_lost_load

    def report(
        self,
        placement: Placement,
        kind: IncidentKind,
        why: SwarmError,
        complaint: int | None = None,
        seen_at_s: float | None = None,
    ) -> None:
        """Something is not as it should be with a placement that holds memory.

        why: what its replies are told in the end, if nothing helps. complaint: a stage to which a link is broken.
        seen_at_s: the last sign of life of what is lost. Returns at once; from now on the placement is healing.
        """
        case = self._cases.get(placement.record.placement_id)
        if case is not None:
            case.take(kind, why, complaint)
            return
        if not placement.state.holds_memory or not self._board.is_current(placement):
            return
        is_loading = placement.task is not None and not placement.task.done()
        if is_loading and kind in (IncidentKind.LINK, IncidentKind.STALL):
            return  # its load wires it, and looks at broken links itself
        case = Case(placement, kind, why, self._clock.monotonic_s(), seen_at_s)
        if complaint is not None:
            case.complaints.add(complaint)
        if is_loading:
            self._start(case, self._load_again(case))
        else:
            placement.task = self._start(case, self._heal(case))

    def resume(self, placement: Placement, incident: IncidentRecord | None) -> None:
        """The leader started: bring back what its ledger says was held. incident: what was being done about it."""
        why = FellowLost(f"the leader started, and not every fellow of {placement.model_id} came back")
        case = Case(placement, IncidentKind.RESTART, why, self._clock.monotonic_s(), incident=incident, is_resumed=True)
        if incident is not None:
            case.kind, case.fresh = incident.kind, set(incident.stages)
        placement.task = self._start(case, self._heal(case))

    def await_fellow(self, placement: Placement, incident: IncidentRecord) -> None:
        """The leader started, and this one was given up until another fellow joins."""
        why = FellowLost(placement.record.reason)
        case = Case(placement, incident.kind, why, self._clock.monotonic_s(), incident=incident)
        self._waiting[case.model_id] = case

    async def forget(self, incident: IncidentRecord) -> None:
        """The leader started, and what an open incident is about is over."""
        record = self._board.by_id(incident.placement_id) or self._board.get(incident.model_id)
        if record is not None:
            case = Case(record, incident.kind, FellowLost(""), self._clock.monotonic_s(), incident=incident)
            await self._incidents.close(case, Outcome.ENDED, "it was over when the leader started")

    async def move(self, placement: Placement, stage_index: int, choice: Choice, why: str) -> None:
        """Have another fellow load a stage of a ready ring, then hand it over; see HandingOver.move."""
        await self._handing_over.move(placement, stage_index, choice, why)

    def nudge(self) -> None:
        """A fellow came, or went: whoever waits looks again."""
        for case in self._cases.values():
            case.changed.set()

    def sweep(self) -> None:
        """Try again what was given up, if a fellow is here that was not; forget what somebody ended or loaded."""
        connected = frozenset(
            one.fellow_id for one in self._registry.all() if self._registry.is_connected(one.fellow_id)
        )
        for model_id, case in list(self._waiting.items()):
            is_ours = self._board.is_current(case.placement) and case.placement.state is PlacementState.FAILED
            if not is_ours:
                del self._waiting[model_id]
                self._tasks.start(self._close_ended(case), f"close an incident of {model_id}")
            elif connected - case.tried_with:
                del self._waiting[model_id]
                case.tried_with = connected
                self._tasks.start(self._guard(case, self._try_again(case)), f"try {model_id} again")
            else:
                case.tried_with &= connected  # who leaves and comes back is a new chance

    def _start(self, case: Case, work: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        case.placement.is_healing = True
        self._board.notify(case.model_id)
        self._cases[case.placement.record.placement_id] = case
        return self._tasks.start(self._guard(case, work), f"heal {case.model_id}")

    async def _guard(self, case: Case, work: Coroutine[Any, Any, None]) -> None:
        """Run a healing to its end, whatever that is."""
        first = case.placement
        try:
            await work
        except StaleEpoch:
            await self._close_ended(case)
        except asyncio.CancelledError:
            # Somebody ended it, or the leader stops, and goes on later.
            if not (case.placement.is_healing or case.is_given_up or case.placement.state.holds_memory):
                await self._close_ended(case)
            raise
        except SwarmError as error:
            await self._give_up(case, error.message)
        except Exception as error:
            log.error("healing failed", model=case.model_id, exc_info=error)
            await self._give_up(case, "internal error; see the leader's log")
        finally:
            for placement in (first, case.placement):
                current = self._cases.get(placement.record.placement_id)
                if current is case:
                    del self._cases[placement.record.placement_id]
                if current in (case, None):
                    placement.is_healing = False
            self._board.notify(case.model_id)

    async def _close_ended(self, case: Case) -> None:
        by_whom = "the swarm was started anew" if case.is_resumed else "it was unloaded or loaded by somebody meanwhile"
        await self._incidents.close(case, Outcome.ENDED, by_whom)

    def _take_lost_load(self, placement: Placement, why: SwarmError) -> None:
        """A load failed because a machine or a stage's process was lost: the fleet may have others."""
        case = Case(placement, IncidentKind.LOST, why, self._clock.monotonic_s())
        self._start(case, self._load_again(case))

    async def _load_again(self, case: Case) -> None:
        """What was being loaded is loaded by a fresh plan, on what is left."""
        await self._load_anew(case, case.why.message)

    async def _try_again(self, case: Case) -> None:
        """Another fellow is here: see whether the model fits now, and load it. Nothing is said when it does not."""
        request = (await self._anew.requests(case, fewest=True))[0]
        try:
            await self._loading.plan(case.model_id, request)
        except SwarmError as refusal:
            await self._incidents.note(case, "waiting", f"it still cannot be loaded: {refusal.message}")
            self._waiting[case.model_id] = case
            return
        await self._load_anew(case, case.why.message)

    async def _heal(self, case: Case) -> None:
        """Look at the ring and do what is next, until it serves or nothing helps."""
        if case.kind is IncidentKind.CRASH and self._crashes.is_too_often(case.model_id, self._clock.monotonic_s()):
            words = f"that was the {CRASHES_MAX}th time within {CRASHES_S:g} s"
            await self._give_up(case, words)
            return
        if case.kind is not IncidentKind.RESTART:
            await self._incidents.open(case)
            await self._say(case, case.fault)
        while True:
            case.changed.clear()
            examined = await self._examining.examine(case.placement, case.complaints)
            verdict = judge(examined.facts)
            if verdict.lost:
                if await self._replace(case, verdict, examined):
                    return
            elif verdict.waits_for:
                await self._say(case, self._say_away(verdict, case.placement))
                await case.wait(self._limits.poll_s)
            elif await self._bring_up(case):
                return

    async def _replace(self, case: Case, verdict: Verdict, examined: Examined) -> bool:
        """Bring lost stages to whoever can hold them; True when it is over, one way or the other."""
        stages = case.placement.record.stages
        for index in verdict.lost:
            if stages[index].state == "loaded":
                await self._take_lost_stage(case, stages[index])
        chosen = self._replacing.choose(case.placement, verdict.lost, case.refused, examined.silent)
        if chosen.choices and case.moves < MOVES_MAX:
            case.moves += 1
            await self._bring(case, chosen.choices)
            return False
        words = "; ".join(chosen.missing[index] for index in sorted(chosen.missing))
        words = words or f"it was tried {MOVES_MAX} times"
        if case.moves < MOVES_MAX and (verdict.waits_for or self._is_patient(case, verdict)):
            await self._incidents.note(case, "lost", f"{words}; waits for a fellow")
            await self._say(case, f"{case.fault}; waits for a fellow that has room")
            await case.wait(self._limits.poll_s)
            return False
        await self._load_anew(case, words)
        return True

    async def _take_lost_stage(self, case: Case, stage: StageRecord) -> None:
        """A stage is lost that was loaded; a machine that is away is named, whatever was heard of it first."""
        name = self._registry.name_of(stage.fellow_id)
        is_connected = self._registry.is_connected(stage.fellow_id)
        case.lost[stage.stage_index] = say_lost(stage, name, is_connected)
        case.away.pop(stage.stage_index, None)
        if not is_connected:
            case.away[stage.stage_index] = stage
        await self._incidents.note_lost(case, stage.stage_index, name)

    async def _bring(self, case: Case, choices: Mapping[int, Choice]) -> None:
        """Record who holds these stages from now on, then have them load. What fails is not tried there again."""
        words, reason = say_bringing(choices), say_moving(case.fault, choices)
        moved = {index: choice.stage for index, choice in choices.items()}
        case.has_moved |= any(choice.way is not Way.OWN for choice in choices.values())
        await self._board.save(case.placement, lambda record: rules.move(record, moved, reason), words)
        case.fresh |= set(choices)
        for index, choice in sorted(choices.items()):
            case.away.pop(index, None)
            await self._incidents.note_replacement(case, index, choice.fellow_name, words)
        await asyncio.gather(*(self._bring_one(case, choice) for choice in choices.values()))

    async def _bring_one(self, case: Case, choice: Choice) -> None:
        """Raises StaleEpoch; what else goes wrong is written down."""
        try:
            await self._replacing.bring(case.placement, choice)
        except StaleEpoch:
            raise
        except SwarmError as error:
            if not isinstance(error, FellowLost):  # who is lost and comes back may try again
                case.refused.add((choice.stage.stage_index, choice.stage.fellow_id))
            await self._incidents.note(case, "moving", error.message)

    async def _bring_up(self, case: Case) -> bool:
        """Every stage is held: have the ring serve. True when it is over, one way or the other."""
        placement, known_faults = case.placement, case.faults
        fellows = [self._registry.get(stage.fellow_id) for stage in placement.record.stages]
        able = [fellow for fellow in fellows if fellow is not None]
        try:
            await self._stages.fit_kv(placement)
            if not await self._still_stands(case):
                if not all(fellow.capabilities.serve_rewire for fellow in able):
                    await self._load_anew(case, "a fellow of the ring takes no new epoch (serve_rewire)", is_same=True)
                    return True
                paced_s = self._pace.wait_s(case.model_id, self._clock.monotonic_s())
                await asyncio.sleep(max(paced_s, self._limits.rewire_waits_s[case.rewires]))
                case.complaints.clear()
                keeping = Keeping(all(fellow.capabilities.serve_keep for fellow in able), tuple(sorted(case.fresh)))
                await self._incidents.note(case, "wiring", "every stage is held: the ring is wired anew")
                await self._wiring.wire(placement, placement.record.epoch + 1, keeping)
            await self._loading.be_ready(placement)
            case.fresh.clear()
            if case.faults != known_faults or placement.broken_epoch >= placement.record.epoch:
                # One more, at that very moment. Links that its wiring tried before it fell back were of older epochs.
                return False
        except StaleEpoch:
            raise
        except NotEnoughMemory as failure:
            self._refuse_tight(case, failure)
            return False
        except SwarmError as failure:
            return await self._take_rewire_failure(case, failure)
        self._cases.pop(placement.record.placement_id, None)  # what is heard from now on is another fault
        placement.task = None  # nor does the writing down below keep it from being heard
        await self._close(case, Outcome.MOVED if case.has_moved else Outcome.RECOVERED)
        return True

    async def _still_stands(self, case: Case) -> bool:
        """After a start of the leader: whether the ring went on by itself, as direct rings do."""
        placement = case.placement
        record = placement.record
        if case.kind is not IncidentKind.RESTART or case.fresh or case.complaints:
            return False
        if placement.broken_epoch >= record.epoch or any(stage.route is Route.RELAY for stage in record.stages):
            return False
        for stage in record.stages:
            status = self._registry.status_of(stage.fellow_id, record.placement_id)
            if status is None or status.spec.epoch != record.epoch:
                return False
        try:
            await self._wiring.probe(placement, PROBE_S)
        except SwarmError as error:
            log.info("the ring did not outlive the leader", model=case.model_id, why=error.message)
            return False
        return True

    async def _take_rewire_failure(self, case: Case, failure: SwarmError) -> bool:
        """The ring did not come up. A stage that is found lost is replaced; else this is tried a few times."""
        await self._incidents.note(case, "wiring", failure.message)
        if isinstance(failure, FellowLost) and not self._is_all_connected(case.placement):
            await self._say(case, f"{case.fault}; it did not come up: {failure.message}")
            return False
        case.rewires += 1
        is_young = self._clock.monotonic_s() - case.opened_at_s < self._limits.wait_s
        if case.rewires < (len(self._limits.rewire_waits_s) if is_young else REWIRES_MIN):
            return False
        words = f"the ring did not come up again after {case.rewires} tries: {failure.message}"
        await self._load_anew(case, words, fewest=True)
        return True

    def _refuse_tight(self, case: Case, failure: NotEnoughMemory) -> None:
        """A stage that was brought to a fellow leaves no room for a conversation there: it must go elsewhere."""
        record = case.placement.record
        for index in sorted(case.fresh):
            measured = case.placement.stages[index].kv_tokens_measured
            if measured is not None and measured < record.context_tokens:
                fellow_id = record.stages[index].fellow_id
                case.refused.add((index, fellow_id))
                fellow = self._registry.get(fellow_id)
                if fellow is not None:
                    fellow.drop_stage(record.placement_id)
                self._tasks.start(
                    self._ending.unload_stage(fellow_id, record.placement_id), "unload a stage without room"
                )
        log.warning("no room beside a stage", model=case.model_id, why=failure.message)

    async def _load_anew(self, case: Case, words: str, fewest: bool = False, is_same: bool = False) -> None:
        """The ring cannot be brought back as it is: a fresh plan over what is left, or the end."""
        requests = await self._anew.requests(case, fewest)
        if is_same and self._is_all_connected(case.placement):
            holders = tuple(stage.fellow_id for stage in case.placement.record.stages)
            requests = [replace(requests[0], fellow_ids=holders), *requests]
        whole = _same_kind(case.why, join_words(case.fault if case.away else case.why.message, words))
        refusal = await self._anew.load(case, whole, requests)
        if refusal:
            # Of a machine that is away, what the fleet lacks without it says more than who holds what beside it.
            await self._give_up(case, refusal if self._away(case) else join_words(words, refusal))
        else:
            await self._close(case, Outcome.LOADED_ANEW)

    async def _close(self, case: Case, outcome: Outcome) -> None:
        if self._cases.get(case.placement.record.placement_id) in (case, None):
            case.placement.is_healing = False
        self._board.notify(case.model_id)
        await self._incidents.close(case, outcome, f"{case.model_id} serves again")

    async def _give_up(self, case: Case, words: str) -> None:
        """Nothing helps now: say so to everyone who waits, and try again when another fellow is here."""
        placement, case.is_given_up = case.placement, True
        away = {stage: self._registry.name_of(stage.fellow_id) for stage in self._away(case)}
        if away:
            who = (tell_lost(stage, name) for stage, name in away.items())
            told = join_words(*who, f"nobody else can hold {'it' if len(away) == 1 else 'them'}: {words}")
        else:
            told = join_words(case.why.message, words)
        whole = f"{told}; {say_fix(case.model_id, sorted(set(away.values())))}"
        # Whoever was held hears what whoever asks from now on hears.
        why = ModelNotReady(whole, state=PlacementState.FAILED.value, **_machine(case.why))
        if placement.state.holds_memory:
            await self._ending.end(placement, PlacementState.FAILED, why)
        elif placement.state is PlacementState.FAILED and self._board.is_current(placement):
            failed = replace(placement.record, reason=whole)
            try:
                await self._board.save(placement, lambda record: failed, told)
            except SwarmError as error:
                log.error("a failure was not recorded", model=case.model_id, why=error.message)
                self._board.show(placement, failed)
        self._ending.turn_away(placement, why)
        await self._incidents.note(case, "waiting", told)
        connected = (one.fellow_id for one in self._registry.all() if self._registry.is_connected(one.fellow_id))
        case.tried_with = frozenset(connected)
        case.refused.clear()
        case.moves = case.rewires = 0
        self._waiting[case.model_id] = case

    async def _say(self, case: Case, reason: str) -> None:
        """Show, and remember, that the placement is being brought back, and why it takes so long: in one short line."""
        placement, reason = case.placement, shorten(reason)
        if placement.state is not PlacementState.RECOVERING:
            await self._board.save(placement, lambda record: rules.recover(record, reason), reason)
        elif placement.record.reason != reason:
            self._board.show(placement, replace(placement.record, reason=reason))

    def _is_patient(self, case: Case, verdict: Verdict) -> bool:
        """Whether somebody to hold the lost stages is still waited for: a while from when they were last heard of."""
        now_s = self._clock.monotonic_s()
        if case.patience_until_s is None or case.patient_for != verdict.lost:
            seen_s = [self._last_seen_s(case, index) for index in verdict.lost]
            case.patient_for = verdict.lost
            case.patience_until_s = max(now_s + min(GRACE_S, self._limits.wait_s), max(seen_s) + self._limits.wait_s)
        return now_s < case.patience_until_s

    def _last_seen_s(self, case: Case, stage_index: int) -> float:
        fellow_id = case.placement.record.stages[stage_index].fellow_id
        fellow = self._registry.get(fellow_id)
        if fellow is None or self._registry.is_connected(fellow_id) or fellow.heartbeat_at_s is None:
            return case.opened_at_s
        return min(case.opened_at_s, fellow.heartbeat_at_s)

    def _away(self, case: Case) -> list[StageRecord]:
        """Stages that nobody holds, since their machines are not there."""
        return [case.away[at] for at in sorted(case.away) if not self._registry.is_connected(case.away[at].fellow_id)]

    def _say_away(self, verdict: Verdict, placement: Placement) -> str:
        """Whom a ring waits for."""
        stages = placement.record.stages
        names = [self._registry.name_of(stages[index].fellow_id) for index in verdict.waits_for]
        plural = "s" if len(names) > 1 else ""
        return f"waits for fellow{plural} {' and '.join(names)}, whose connection broke"

    def _is_all_connected(self, placement: Placement) -> bool:
        return all(self._registry.is_connected(stage.fellow_id) for stage in placement.record.stages)


def _machine(why: SwarmError) -> dict[str, object]:
    """Where it was, as far as that is known."""
    return {name: why.facts[name] for name in ("fellow", "stage") if name in why.facts}


def _same_kind(why: SwarmError, words: str) -> SwarmError:
    """The same fact in other words."""
    kind = type(why) if isinstance(why, FellowLost | StageFailed) else LoadFailed
    return kind(words, **why.facts)
