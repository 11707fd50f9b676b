"""Which target answers a method and a path. Pure; knows nothing of what a target is."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Generic, TypeVar

from swarm_rpc.rest.template import MANY, ONE, Template, split_path

T = TypeVar("T")


@dataclass(frozen=True)
class Found(Generic[T]):
    """The target of a path, with the still encoded variables of its template."""

    target: T
    template: Template
    raw_variables: dict[str, str]


class Table(Generic[T]):
    """Templates with their targets; the most specific one wins."""

    def __init__(self) -> None:
        self._entries: list[tuple[str, Template, T]] = []

    def add(self, http_method: str, template: Template, target: T) -> None:
        """Raises ValueError when the same paths have a target already."""
        for method, other, _ in self._entries:
            if method == http_method and _shape(other) == _shape(template):
                raise ValueError(f"{http_method} {template.text} and {other.text} match the same paths")
        self._entries.append((http_method, template, target))
        self._entries.sort(key=lambda entry: entry[1].specificity, reverse=True)

    def find(self, http_method: str, raw_path: str) -> Found[T] | None:
        """The target for a raw (still percent-encoded) path, or None."""
        return next((found for method, found in self._matches(raw_path) if method == http_method), None)

    def methods(self, raw_path: str) -> list[str]:
        """The methods a path can be asked with, sorted; empty when nothing lives there."""
        return sorted({method for method, _ in self._matches(raw_path)})

    def __iter__(self) -> Iterator[tuple[str, Template, T]]:
        return iter(self._entries)

    def _matches(self, raw_path: str) -> Iterator[tuple[str, Found[T]]]:
        segments = split_path(raw_path)
        for method, template, target in self._entries:
            raw_variables = template.match(segments)
            if raw_variables is not None:
                yield method, Found(target, template, raw_variables)


def _shape(template: Template) -> tuple[tuple[str, ...], str]:
    return tuple(segment if segment in (ONE, MANY) else f"={segment}" for segment in template.segments), template.verb
