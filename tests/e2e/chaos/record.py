"""What became of one fault: what clients saw, how long it took, what was left behind; and the table of all of them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.e2e.chaos.streams import Stream

NONE = "-"


@dataclass(frozen=True)
class Case:
    """One cell: a fault, where it strikes ("0", "middle", "last", "" is nowhere in the ring), and when."""

    fault: str
    stage: str
    moment: str  # "prefill", "decode", "load", "idle"

    def __str__(self) -> str:
        return "-".join(part.replace(" ", "_") for part in (self.fault, self.stage, self.moment) if part)


@dataclass
class Result:
    """What was seen. Times in seconds; None is not seen or not asked. left: what is there and should not be."""

    case: Case
    errors: list[str] = field(default_factory=list)
    wrong: int = 0  # replies with another text than the undisturbed one
    lost: int = 0  # tokens that are missing, over all replies that ended well
    repeated: int = 0  # tokens too many
    detect_s: float | None = None
    next_token_s: float | None = None
    serves_again_s: float | None = None
    orphans: list[str] = field(default_factory=list)
    left: list[str] = field(default_factory=list)
    idle_cpu_percent: float | None = None
    outcome: str = ""

    def judge(self, streams: Sequence[Stream], alone: Mapping[str, str], tokens: int, fault_s: float) -> None:
        """Hold every reply against the same prompt undisturbed. fault_s: when it struck, monotonic."""
        for stream in streams:
            if stream.error:
                self.errors.append(stream.error)
                continue
            self.wrong += stream.text != alone[stream.prompt]
            told = stream.completion_tokens or 0
            self.lost += max(0, tokens - told)
            self.repeated += max(0, told - tokens)
        gaps_s = [gap_s for stream in streams if (gap_s := stream.longest_gap_s(fault_s)) > 0]
        self.next_token_s = max(gaps_s, default=None)

    def row(self) -> str:
        """A line of the table."""
        cells = (
            self.case.fault,
            self.case.stage or NONE,
            self.case.moment,
            str(len(self.errors)),
            f"{self.wrong} / {self.lost} / {self.repeated}",
            seconds(self.detect_s),
            seconds(self.next_token_s),
            seconds(self.serves_again_s),
            str(len(self.orphans)),
            ", ".join(self.left) or "none",
            NONE if self.idle_cpu_percent is None else f"{self.idle_cpu_percent:.1f} %",
            self.outcome or NONE,
        )
        return f"| {' | '.join(cells)} |"


def seconds(taken_s: float | None) -> str:
    """For the table."""
    return NONE if taken_s is None else f"{taken_s:.1f}"


HEAD = (
    "| fault | stage | when | client errors | replies wrong / tokens lost / repeated | detected, s | next token, s "
    "| serves again, s | orphans | left behind | idle CPU | outcome |\n" + "|---" * 12 + "|"
)


def write_table(path: Path, results: Sequence[Result], conditions: str) -> None:
    """The results of a run, with what it ran on; what the file said before its table stays."""
    before = path.read_text().partition(HEAD.splitlines()[0])[0] if path.exists() else "# Chaos\n\n"
    rows = "\n".join(result.row() for result in results)
    path.write_text(f"{before.rstrip()}\n\n{HEAD}\n{rows}\n\n{conditions}\n")
