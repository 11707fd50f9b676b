"""Whose turn it is when callers share something by weight. Pure: no clock, no I/O; decides order, never room."""

from collections import OrderedDict, deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Generic, TypeVar

T = TypeVar("T")
# Callers remembered for what they took though they wait for nothing; at more, the half that took least is forgiven.
AWAY_MAX = 256


@dataclass
class _Entry(Generic[T]):
    item: T
    cost: float


@dataclass
class _Caller(Generic[T]):
    weight: float
    start: float  # virtual time at which the head of its line may start
    line: deque[_Entry[T]] = field(default_factory=deque)


class FairQueue(Generic[T]):
    """Items of several callers: first come first served within a caller, by weighted cost between them.

    Start-time fair queueing (Goyal, Vin, Cheng 1996): a caller that took `cost` of weight w stands back by cost / w,
    one that was away is not owed anything for it. Over any time in which two callers wait, what each has taken differs
    from its share by no more than its largest item.
    """

    def __init__(self) -> None:
        self._callers: OrderedDict[str, _Caller[T]] = OrderedDict()
        self._now = 0.0  # virtual time: the start of the item taken last

    def __len__(self) -> int:
        return sum(len(caller.line) for caller in self._callers.values())

    def push(self, item: T, caller: str, weight: float = 1.0, cost: float = 1.0) -> None:
        """Add an item behind its caller's others. weight: above 0, the newest counts. cost: above 0."""
        assert weight > 0 and cost > 0, (weight, cost)
        known = self._callers.get(caller)
        if known is None:
            known = self._callers[caller] = _Caller(weight, self._now)
        elif not known.line:
            known.start = max(known.start, self._now)
        known.weight = weight
        known.line.append(_Entry(item, cost))

    def heads(self) -> list[T]:
        """The first item of every caller, whose turn it is first."""
        waiting = [caller for caller in self._callers.values() if caller.line]
        return [caller.line[0].item for caller in sorted(waiting, key=lambda one: one.start)]

    def take(self, item: T) -> None:
        """Remove an item that starts, and charge its caller for it. It must be a head."""
        caller = next(one for one in self._callers.values() if one.line and one.line[0].item is item)
        entry = caller.line.popleft()
        self._now = max(self._now, caller.start)
        caller.start += entry.cost / caller.weight
        self._forget_idle()

    def drop(self, item: T) -> bool:
        """Remove an item that is no longer wanted; nobody is charged. False when it is not here."""
        for caller in self._callers.values():
            for entry in caller.line:
                if entry.item is item:
                    caller.line.remove(entry)
                    self._forget_idle()
                    return True
        return False

    def __iter__(self) -> Iterator[T]:
        """Every item in the order in which they would start."""
        starts = {name: caller.start for name, caller in self._callers.items() if caller.line}
        lines = {name: deque(self._callers[name].line) for name in starts}
        while starts:
            name = min(starts, key=lambda one: starts[one])
            entry = lines[name].popleft()
            yield entry.item
            starts[name] += entry.cost / self._callers[name].weight
            if not lines[name]:
                del starts[name]

    def _forget_idle(self) -> None:
        """A caller that waits for nothing and stands back no more is as one never seen; of others, few are kept."""
        for name in [name for name, one in self._callers.items() if not one.line and one.start <= self._now]:
            del self._callers[name]
        if len(self._callers) > AWAY_MAX:
            away = sorted((one.start, name) for name, one in self._callers.items() if not one.line)
            for _, name in away[: max(0, len(away) - AWAY_MAX // 2)]:
                del self._callers[name]
