"""A reply's text to its parts while it comes: content, reasoning, calls. Pure: text in, text out, no tokens.

What comes out depends on the text alone, not on how it was cut. Text that may still become a mark is held back, and
so are blanks that go with a mark once it comes.
"""

from dataclasses import dataclass, field

from swarm_stage.text.call_scanner import BLANK, CallScanner, ValueScanner
from swarm_stage.text.reply_shape import ARGUMENTS_MARK, CALL_ID_MARK, HERMES_CLOSE, CallFormat, ReplyShape

_SEPARATORS = {CallFormat.LLAMA: ";", CallFormat.MISTRAL_LIST: "[,"}
_HEAD_CHARS_MAX = 256  # of what stands before [ARGS]; more is no call


@dataclass
class CallDelta:
    """More of a call. name: in its first delta only."""

    index: int
    name: str = ""
    arguments: str = ""


@dataclass
class Parts:
    """What came out. Content comes before calls."""

    content: str = ""
    reasoning: str = ""
    calls: list[CallDelta] = field(default_factory=list)


class ReplyParser:
    """One reply. Its whole text is push of every piece, then finish."""

    def __init__(self, shape: ReplyShape) -> None:
        self._shape = shape
        self._held = ""
        self._blank = ""  # blanks that are shown once something follows that is no mark
        self._is_reasoning = shape.is_reasoning
        self._scanner: CallScanner | None = None
        self._value: ValueScanner | None = None  # arguments behind a name that stands alone
        self._name_next = ""  # that name, until it is told
        self._is_between = False  # behind the mark of a call or behind a call: another may begin without a mark
        self._has_content = False
        self._is_behind_mark = shape.is_reasoning  # blanks that follow belong to the mark
        self.calls = 0  # whose names are known

    @property
    def is_reasoning(self) -> bool:
        """Whether what came last is reasoning."""
        return self._is_reasoning

    @property
    def is_content(self) -> bool:
        """Whether what came last is neither reasoning nor a call."""
        return not (self._is_reasoning or self._is_between or self._scanner or self._value)

    def push(self, text: str) -> Parts:
        """More text; what is certain now."""
        parts = Parts()
        if self._shape.is_plain:
            parts.content = text
            return parts
        self._held += text
        while self._step(parts):
            pass
        return parts

    def finish(self) -> Parts:
        """The reply ended: what was held back. Of a call without a name nothing is told."""
        parts = Parts()
        held, self._held = self._held, ""
        if self._scanner is not None and self._shape.calls is CallFormat.LLAMA and self._scanner.name is None:
            held = self._scanner.seen + held  # an object that never showed that it is a call
            self._scanner = None
        elif self._scanner is not None or self._value is not None or self._is_between:
            return parts
        if self.calls and self._is_behind_mark and HERMES_CLOSE.startswith(held):
            held = ""  # cut by the limit within the mark that ends a call
        self._show(parts, held)
        if not self._is_reasoning:
            parts.content += self._blank
        return parts

    def _step(self, parts: Parts) -> bool:
        """Take one part of what is held; whether there may be more to take."""
        if not self._held:
            return False
        if self._scanner is not None:
            return self._read_call(self._scanner, parts)
        if self._value is not None:
            return self._read_value(self._value, parts)
        if self._is_between:
            return self._read_between()
        return self._read_text(parts)

    def _read_text(self, parts: Parts) -> bool:
        """Content or reasoning up to the next mark."""
        if self._begins_bare_call():
            self._blank = ""
            self._is_between = True
            return True
        marks = self._marks()
        found = [(place, -len(mark), mark) for mark in marks if (place := self._held.find(mark)) >= 0]
        if not found:
            keep = _begun(self._held, marks)
            shown, self._held = self._held[: len(self._held) - keep], self._held[len(self._held) - keep :]
            self._show(parts, shown)
            return False
        place, _, mark = min(found)
        self._show(parts, self._held[:place])
        self._held = self._held[place + len(mark) :]
        self._blank, self._is_behind_mark = "", True
        reasoning, calls = self._shape.reasoning, self._shape.calls
        if reasoning is not None and mark in (reasoning.open, reasoning.close):
            self._is_reasoning = mark == reasoning.open
        elif calls is not None and mark == calls.mark:
            self._is_between = True
        return True

    def _marks(self) -> list[str]:
        """Marks that mean something here."""
        reasoning, calls = self._shape.reasoning, self._shape.calls
        marks = [reasoning.open, reasoning.close] if reasoning is not None else []
        if calls is not None and not self._is_reasoning:
            marks += [calls.mark, *([HERMES_CLOSE] if calls is CallFormat.HERMES else [])]
        return marks

    def _begins_bare_call(self) -> bool:
        """Llama's calls have no mark: an object in the first place is one, unless it shows that it is none."""
        is_first = not self._has_content and not self._is_reasoning
        return is_first and self._shape.calls is CallFormat.LLAMA and self._held.lstrip(BLANK).startswith("{")

    def _read_between(self) -> bool:
        """Behind the mark of calls or behind a call: on to the next one, or back to text."""
        calls = self._shape.calls
        assert calls is not None
        self._held = self._held.lstrip(BLANK + _SEPARATORS.get(calls, ""))
        if not self._held:
            return False
        if calls is CallFormat.MISTRAL_ARGS:
            return self._read_head()
        self._is_between = False
        if self._held.startswith("{"):
            self._scanner = CallScanner(self._shape.tools if calls is CallFormat.LLAMA else ())
        elif calls is CallFormat.MISTRAL_LIST and self._held.startswith("]"):
            self._held = self._held[1:]
        return True

    def _read_head(self) -> bool:
        """A name that stands alone before its arguments."""
        place = self._held.find("{")
        if max(place, len(self._held) if place < 0 else 0) > _HEAD_CHARS_MAX:
            self._is_between = False
            return True
        if place < 0:
            return False
        head = self._held[:place].split(ARGUMENTS_MARK)[0].split(CALL_ID_MARK)[0]
        self._held = self._held[place:]
        self._is_between = False
        self._name_next = head.strip()
        if self._name_next:
            self._value = ValueScanner()
        else:  # no name alone: it is inside, as in the older form
            self._scanner = CallScanner()
        return True

    def _read_value(self, value: ValueScanner, parts: Parts) -> bool:
        taken = value.push(self._held)
        arguments, self._held = self._held[:taken], self._held[taken:]
        if self._name_next:
            self.calls += 1
        self._tell(parts, self._name_next, arguments)
        self._name_next = ""
        if value.is_over:
            self._value, self._is_behind_mark = None, True
        return value.is_over

    def _read_call(self, scanner: CallScanner, parts: Parts) -> bool:
        was_named = scanner.name is not None
        arguments, taken = scanner.push(self._held)
        self._held = self._held[taken:]
        if scanner.is_broken:
            self._scanner = None
            self._show(parts, scanner.seen)
            return True
        if scanner.name is not None:
            self.calls += not was_named
            self._tell(parts, "" if was_named else scanner.name, arguments)
        if not scanner.is_over:
            return False
        if not scanner.has_arguments:
            self._tell(parts, "", "{}")
        self._scanner = None
        self._is_between = self._shape.calls is not CallFormat.HERMES
        self._is_behind_mark = True
        return True

    def _tell(self, parts: Parts, name: str, arguments: str) -> None:
        """More of the newest call."""
        index = self.calls - 1
        if parts.calls and parts.calls[-1].index == index:
            parts.calls[-1].arguments += arguments
        elif name or arguments:
            parts.calls.append(CallDelta(index, name, arguments))

    def _show(self, parts: Parts, text: str) -> None:
        """Text that is no mark. Blanks at its end wait for what follows."""
        if self._is_behind_mark:
            text = text.lstrip(BLANK)
        if not text:
            return
        kept = text.rstrip(BLANK)
        if not kept:
            self._blank += text
            return
        shown = self._blank + kept
        self._blank = text[len(kept) :]
        self._is_behind_mark = False
        if self._is_reasoning:
            parts.reasoning += shown
        else:
            self._has_content = True
            parts.content += shown


def _begun(text: str, marks: list[str]) -> int:
    """Length of the longest end of `text` that begins a mark."""
    longest = max(map(len, marks), default=1) - 1
    for length in range(min(longest, len(text)), 0, -1):
        if any(mark.startswith(text[len(text) - length :]) for mark in marks):
            return length
    return 0
