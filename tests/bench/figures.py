"""One row of the table of speeds: what is asked, the pairs that were measured, and whether it is met. Pure."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum


class Unit(Enum):
    """How a figure is written."""

    TIMES = "x"
    MS = "ms"
    PERCENT = "%"


@dataclass(frozen=True)
class Target:
    """What a row must reach. is_least: more is better, and `floor` is the least; otherwise it is the most."""

    floor: float | None
    aim: float | None
    unit: Unit = Unit.TIMES
    is_least: bool = True

    def verdict(self, figure: float) -> str:
        """In words: aim met, floor met, or not."""
        if self.floor is None or self.aim is None:
            return "no target"
        if self.reaches(figure, self.aim):
            return "aim met"
        return "floor met" if self.reaches(figure, self.floor) else "NOT MET"

    def reaches(self, figure: float, bound: float) -> bool:
        """Whether a figure is as good as a bound."""
        return figure >= bound if self.is_least else figure <= bound


NO_TARGET = Target(None, None)


@dataclass(frozen=True)
class Pair:
    """A and B, measured one after the other, and the figure they give."""

    a: float
    b: float
    figure: float

    @staticmethod
    def ratio(a: float, b: float) -> "Pair":
        """A / B."""
        return Pair(a, b, a / b)


@dataclass(frozen=True)
class Row:
    """A measured row. a, b: what the numbers of the pairs are, with their unit."""

    what: str
    target: Target
    pairs: tuple[Pair, ...]
    a: str
    b: str
    notes: tuple[str, ...] = field(default=())

    @property
    def figure(self) -> float:
        """The median of the pairs' figures."""
        return statistics.median(pair.figure for pair in self.pairs)

    @property
    def verdict(self) -> str:
        """Whether floor and aim are met."""
        return self.target.verdict(self.figure)


def show(value: float | None, unit: Unit) -> str:
    """A figure with its unit; "-" for none."""
    if value is None:
        return "-"
    if unit is Unit.PERCENT:
        return f"{value * 100:.1f} %"
    return f"{value:.2f} {unit.value}"


def row_line(row: Row) -> str:
    """One row as a line of a Markdown table."""
    unit = row.target.unit
    pairs = "; ".join(f"{show(pair.figure, unit)} ({pair.a:.4g} / {pair.b:.4g})" for pair in row.pairs)
    bounds = f"{show(row.target.floor, unit)} | {show(row.target.aim, unit)}"
    return f"| {row.what} | {bounds} | **{show(row.figure, unit)}** | {row.verdict} | {pairs} |"


def table(rows: Sequence[Row], conditions: Sequence[str]) -> str:
    """All rows as Markdown, with what A and B are, and the conditions."""
    lines = ["| what | at least | aim | median | verdict | every pair (A / B) |", "|---|---|---|---|---|---|"]
    lines += [row_line(row) for row in rows]
    lines += ["", "What A and B are:", ""]
    for row in rows:
        lines.append(f"- {row.what}: A {row.a}; B {row.b}.{''.join(f' {note}' for note in row.notes)}")
    lines += ["", "Conditions:", "", *(f"- {condition}" for condition in conditions), ""]
    return "\n".join(lines)


def quantile(values: Sequence[float], share: float) -> float:
    """The value below which `share` (0..1) of the values lie, the nearest one; nan for none."""
    if not values:
        return float("nan")
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]
