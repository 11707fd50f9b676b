"""Who holds each lost stage next: whoever serves it soonest, and nothing else moves. Pure; sends nothing."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum

from swarm_leader.domain.capabilities import FellowFacts
from swarm_leader.domain.healing.refit import Refit, needed_bytes
from swarm_leader.domain.planning.refusals import gigabytes
from swarm_leader.domain.records import PlacementRecord, StageRecord


class Way(IntEnum):
    """How a stage comes to its fellow, soonest first."""

    HOT = 0  # loaded there already, outside the ring
    OWN = 1  # the fellow that held it loads it again: its files are there
    WARM = 2  # another one that has its files
    STANDBY = 3  # another one that fetches them


@dataclass(frozen=True)
class Candidate:
    """A connected fellow. covers: of this placement, by stage index, whether it is hot. is_draining: takes nothing."""

    facts: FellowFacts
    is_draining: bool = False
    covers: Mapping[int, bool] | None = None

    def is_hot(self, stage_index: int) -> bool:
        """It holds the stage loaded."""
        return bool(self.covers and self.covers.get(stage_index))

    def is_warm(self, stage_index: int) -> bool:
        """It has the stage's files, at least."""
        return bool(self.covers and stage_index in self.covers)


@dataclass(frozen=True)
class Choice:
    """A stage as its next fellow will hold it, and how it comes there."""

    stage: StageRecord
    way: Way
    fellow_name: str


@dataclass(frozen=True)
class Chosen:
    """By stage index: who holds it next, or why nobody can, in words with names and numbers."""

    choices: Mapping[int, Choice]
    missing: Mapping[int, str]


def choose(
    record: PlacementRecord,
    lost: Sequence[int],
    candidates: Sequence[Candidate],
    refit: Refit | None,
    refused: Collection[tuple[int, str]] = (),
) -> Chosen:
    """Find a fellow for each lost stage; one that holds another stage of the ring is out of question.

    refused: pairs of stage and fellow that were tried and failed. refit: None when the weights are not known any more;
    then only who has the stage, or had it, can hold it. The heavier stage chooses first among equals, and takes the
    roomier fellow. The same facts give the same choice, whatever their order.
    """
    kept = {stage.fellow_id for stage in record.stages if stage.stage_index not in lost}
    ring = [one.facts for one in candidates if one.facts.fellow_id in kept]
    ranked = sorted(candidates, key=_roomiest_first)
    open_stages = sorted(
        (record.stages[index] for index in lost), key=lambda stage: (-needed_bytes(stage), stage.stage_index)
    )
    taken, choices, obstacles = set(kept), {}, _Obstacles(refit, ring, refused)
    for way in Way:
        for stage in open_stages:
            if stage.stage_index in choices:
                continue
            for one in ranked:
                if one.facts.fellow_id in taken or not _comes_by(way, stage, one):
                    continue
                if obstacles.find(way, stage, one):
                    continue
                choices[stage.stage_index] = _choice(way, stage, one, refit)
                taken.add(one.facts.fellow_id)
                break
    missing = {
        stage.stage_index: _say_missing(stage, ranked, taken, obstacles)
        for stage in open_stages
        if stage.stage_index not in choices
    }
    return Chosen(choices, missing)


@dataclass(frozen=True)
class _Obstacles:
    """Why a fellow cannot have a stage."""

    refit: Refit | None
    ring: Sequence[FellowFacts]
    refused: Collection[tuple[int, str]]

    def find(self, way: Way, stage: StageRecord, one: Candidate) -> str:
        """In words; "" when it can."""
        if one.is_draining:
            return "is being drained"
        if (stage.stage_index, one.facts.fellow_id) in self.refused:
            return "could not load it"
        if way in (Way.HOT, Way.OWN):
            return ""
        if self.refit is None:
            return "cannot be told what to load: the model has left the catalog"
        return self.refit.find_obstacle(stage, one.facts, self.ring)


def _comes_by(way: Way, stage: StageRecord, one: Candidate) -> bool:
    if way is Way.HOT:
        return one.is_hot(stage.stage_index)
    if way is Way.OWN:
        return one.facts.fellow_id == stage.fellow_id
    return way is Way.STANDBY or one.is_warm(stage.stage_index)


def _choice(way: Way, stage: StageRecord, one: Candidate, refit: Refit | None) -> Choice:
    if way is Way.OWN:
        held = replace(stage, state="loading", weight_bytes_measured=None, quantization="")
    elif refit is None:
        held = replace(stage, fellow_id=one.facts.fellow_id, devices=())
    elif way is Way.HOT and refit.find_obstacle(stage, one.facts, ()):
        # What it holds counts in its memory already, which is why it may not seem to fit twice.
        held = replace(stage, fellow_id=one.facts.fellow_id, devices=())
    else:
        held = refit.refit(stage, one.facts)
    return Choice(replace(held, state="loaded") if way is Way.HOT else held, way, one.facts.name)


def _roomiest_first(one: Candidate) -> tuple[bool, int, str, str]:
    room = one.facts.room_bytes
    return (room is None, -(room or 0), one.facts.name, one.facts.fellow_id)


def _say_missing(stage: StageRecord, ranked: Sequence[Candidate], taken: set[str], obstacles: _Obstacles) -> str:
    """Why nobody can hold a stage, fellow by fellow."""
    layers = f"layers {stage.layer_start} to {stage.layer_stop - 1}, {gigabytes(needed_bytes(stage))}"
    words = []
    for one in sorted(ranked, key=lambda one: one.facts.name):
        if one.facts.fellow_id in taken:
            words.append(f"{one.facts.name} holds another stage of it")
        else:
            way = Way.OWN if one.facts.fellow_id == stage.fellow_id else Way.STANDBY
            words.append(f"{one.facts.name} {obstacles.find(way, stage, one)}")
    return f"nobody else can hold stage {stage.stage_index} ({layers}): {'; '.join(words) or 'no fellow is connected'}"
