"""Which session numbers a later stage has heard of in an epoch: none is used twice. Pure."""

UNHEARD_MAX = 256  # a ring has far fewer on their way; only bounds memory


class SessionNumbers:
    """Numbers grow in the order in which sessions begin, but one that goes on may be overtaken while it is rebuilt."""

    def __init__(self) -> None:
        self._last = 0
        self._unheard: dict[int, None] = {}  # below the last one, in order

    @property
    def last(self) -> int:
        """The largest heard."""
        return self._last

    def hear(self, number: int, may_be_late: bool = False) -> bool:
        """A session begins, or was over before it began here. False for a number that was used."""
        if number > self._last:
            first = max(self._last + 1, number - UNHEARD_MAX)
            self._unheard.update(dict.fromkeys(range(first, number)))
            while len(self._unheard) > UNHEARD_MAX:
                del self._unheard[next(iter(self._unheard))]
            self._last = number
            return True
        if number not in self._unheard or not may_be_late:
            return False
        del self._unheard[number]
        return True

    def forget(self, number: int) -> None:
        """It is over and never begins here."""
        self._unheard.pop(number, None)
