"""A ring whose stages are all held did not come up: who is cut off, and what is next. Pure: no clock, no I/O."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from swarm_leader.domain.records import Route

AGAIN_S = 0.5
MOVE_AFTER_S = 2.5  # a line that is down for two seconds costs no move
WAITS_S = (0.5, 1.0, 2.0, 2.0)  # between tries that name nobody
TRIES_MIN = 3  # however long each of them takes


@dataclass(frozen=True)
class Down:
    """What a try says. groups: in each, one of these stages is cut off, the likeliest first."""

    groups: tuple[tuple[int, ...], ...] = ()
    is_relay_away: bool = False


def read_down(routes: Sequence[Route], failed: Collection[int], own: Collection[int] = ()) -> Down:
    """Read which links did not come up, by the stages that dial. own: stages whose own fault it is.

    A stage that fails at the relay is cut off itself, unless everyone is who goes by the relay. Of a direct link either
    end may be to blame, and a stage that is an end of every link that failed is.
    """
    count = len(routes)
    relayed = {index for index in range(count) if Route.RELAY in (routes[index], routes[index - 1])}
    if len(relayed) > 1 and relayed <= set(failed):
        return Down(is_relay_away=True)
    groups = []
    for index in sorted(failed):
        following = (index + 1) % count
        if index in own or routes[index] is not Route.DIRECT or following == index:
            groups.append((index,))
        elif routes[index - 1] is Route.RELAY:
            groups.append((index, following))
        else:
            groups.append((following, index))
    common = set.intersection(*map(set, groups)) if groups else set()
    if len(common) == 1:
        return Down((tuple(common),))
    return Down(tuple(groups))


@dataclass(frozen=True)
class Suspicion:
    """A stage that is named each time. since_s: from when on, on the monotonic clock."""

    fellow_id: str
    count: int
    since_s: float


@dataclass(frozen=True)
class Tries:
    """What the tries said since a stage was last moved, or the ring last came up.

    count: those that came to nothing; last: what the newest of them says. first_s, began_s: when the first and the
    newest began, on the monotonic clock.
    """

    count: int = 0
    first_s: float | None = None
    began_s: float = 0.0
    suspicions: Mapping[int, Suspicion] = field(default_factory=dict)
    last: Down = Down()

    def begin(self, complaints: Collection[int], holders: Sequence[str], heard_s: float, now_s: float) -> "Tries":
        """One begins. complaints: stages to which neighbours' links broke at heard_s, which the first try counts."""
        suspicions = self.suspicions
        if not self.count:
            heard = {index: Suspicion(holders[index], 1, heard_s) for index in complaints if index < len(holders)}
            suspicions = {**heard, **self.suspicions}
        first_s = now_s if self.first_s is None else self.first_s
        return replace(self, suspicions=suspicions, first_s=first_s, began_s=now_s)

    def fail(self, down: Down, holders: Sequence[str]) -> "Tries":
        """It came to nothing. holders: who holds the stages. Who is not named again is suspected no more."""
        named = {}
        for index in {one for group in down.groups for one in group}:
            known = self.suspicions.get(index)
            if known is None or known.fellow_id != holders[index]:
                known = Suspicion(holders[index], 0, self.began_s)
            named[index] = Suspicion(known.fellow_id, known.count + 1, known.since_s)
        return replace(self, count=self.count + 1, suspicions=named, last=down)

    def moved(self) -> "Tries":
        """A stage goes elsewhere: the tries begin anew, and what else was suspected still is."""
        return Tries(suspicions=self.suspicions)

    def cut_off(self, now_s: float, wait_s: float) -> tuple[int, ...]:
        """Stages that were named for long enough, one of each group. wait_s: the patience that there is in all."""
        found = set()
        for group in self.last.groups:
            known = [(index, self.suspicions[index]) for index in group]
            index, likeliest = max(known, key=lambda one: one[1].count)  # the first of those named most often
            is_long = now_s - likeliest.since_s >= min(MOVE_AFTER_S, wait_s / 2)
            if is_long:
                found.add(index)
        return tuple(sorted(found))


@dataclass(frozen=True)
class Step:
    """What is next; nothing: it is no use.

    moves: stages that are loaded elsewhere while it is tried again. again_in_s: until it is tried again.
    """

    moves: tuple[int, ...] = ()
    again_in_s: float | None = None


def decide(tries: Tries, movable: Collection[int], now_s: float, wait_s: float) -> Step:
    """After a try that came to nothing. movable: stages that are cut off and that somebody else can hold now.

    What is known to be down is waited for while there is patience: a relay that starts, a line that is mended. What is
    not known is tried a few times.
    """
    if movable:
        return Step(moves=tuple(sorted(movable)))
    is_patient = tries.first_s is None or now_s - tries.first_s < wait_s
    if tries.last.is_relay_away or tries.last.groups:
        return Step(again_in_s=AGAIN_S) if is_patient or tries.count < TRIES_MIN else Step()
    if tries.count < (len(WAITS_S) + 1 if is_patient else TRIES_MIN):
        return Step(again_in_s=WAITS_S[tries.count - 1])
    return Step()
