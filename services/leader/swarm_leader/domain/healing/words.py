"""What people are told of a ring that heals: a short line while it does, what to do once nothing helps. Pure."""

from collections.abc import Mapping, Sequence

from swarm_core.errors import SwarmError

from swarm_leader.domain.healing.choose import Choice, Way
from swarm_leader.domain.incidents import IncidentKind
from swarm_leader.domain.records import StageRecord

SHORT_MAX = 99  # characters of a reason while a ring heals; the whole story is in the incident's steps
_WAYS = {
    Way.HOT: "holds it already and takes it over",
    Way.OWN: "loads it again",
    Way.WARM: "has its files and loads it",
    Way.STANDBY: "loads it",
}
_FAULTS = {
    IncidentKind.STALL: "a reply stood still",
    IncidentKind.RESTART: "the leader started",
    IncidentKind.WAY: "its stages reach each other directly now",
}


def shorten(words: str) -> str:
    """The first line, as far as it is shown where there is room for one."""
    line = words.partition("\n")[0].strip().rstrip(":;")
    return line if len(line) <= SHORT_MAX else line[: SHORT_MAX - 4].rstrip() + " ..."


def say_fault(kind: IncidentKind, why: SwarmError) -> str:
    """A fault as it was first heard of, in a few words."""
    fellow, stage = why.facts.get("fellow"), why.facts.get("stage")
    if kind is IncidentKind.CRASH and fellow is not None:
        return f"its stage on {fellow} is gone" if stage is None else f"stage {stage} died on {fellow}"
    if kind is IncidentKind.LINK:
        return "a link of its ring broke" if fellow is None else f"a link of its ring broke at {fellow}"
    if kind is IncidentKind.LOST and fellow is not None:
        return f"{fellow} is away"
    return _FAULTS.get(kind) or shorten(why.message)


def say_lost(stage: StageRecord, fellow_name: str, is_connected: bool) -> str:
    """What became of a stage and its machine, in a few words."""
    gone = f"stage {stage.stage_index} died on {fellow_name}"
    return gone if is_connected else f"{fellow_name} with stage {stage.stage_index} is away"


def say_cut_off(stage: StageRecord, fellow_name: str) -> str:
    """What became of a stage that lives and that its ring does not reach."""
    return f"stage {stage.stage_index} on {fellow_name} is cut off from its ring"


def say_away(fellow_names: Sequence[str]) -> str:
    """Whom a ring waits for."""
    plural = "s" if len(fellow_names) > 1 else ""
    return f"waits for fellow{plural} {' and '.join(fellow_names)}, whose connection broke"


def tell_lost(stage: StageRecord, fellow_name: str) -> str:
    """The same of a machine that is away, for whoever reads only this."""
    layers = f"layers {stage.layer_start}-{stage.layer_stop - 1}"
    return f"{fellow_name}, which holds stage {stage.stage_index} ({layers}), is away"


def say_bringing(choices: Mapping[int, Choice]) -> str:
    """Who brings which stages, each named."""
    return "; ".join(f"stage {at}: {choices[at].fellow_name} {_WAYS[choices[at].way]}" for at in sorted(choices))


def say_moving(fault: str, choices: Mapping[int, Choice]) -> str:
    """A fault, and who helps, in one short line."""
    if len(choices) > 1:
        return shorten(f"{fault}; {say_bringing(choices)}")
    return shorten("; ".join([fault, *(f"{one.fellow_name} {_WAYS[one.way]}" for one in choices.values())]))


def say_fix(model_id: str, away: Sequence[str]) -> str:
    """What a person can do where nothing helps. away: names of machines that would help by coming back."""
    back = f"{' and '.join(away)} {'is' if len(away) == 1 else 'are'} back, or " if away else ""
    return f"it is loaded again by itself when {back}a fellow with room joins, or with: swarm model-load {model_id}"


def join_words(*parts: str) -> str:
    """Sentences in one line, none twice."""
    told: list[str] = []
    for part in (one.strip().rstrip(".;") for one in parts):
        if part and not any(part in earlier for earlier in told):
            told.append(part)
    return "; ".join(told)
