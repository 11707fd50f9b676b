"""Path templates of google.api.http: parsed once, matched against raw paths. Pure; decodes nothing it captures."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import unquote

_VARIABLE = re.compile(r"\{(?P<field>[a-z_][a-z0-9_]*(?:\.[a-z_][a-z0-9_]*)*)(?:=(?P<inner>[^{}]+))?\}")
_PIECE = re.compile(r"\{[^{}]*\}|[^/{}]+")
ONE, MANY = "*", "**"


@dataclass(frozen=True)
class Variable:
    """A field taken from the path: the segments [start, stop) of the template, half open."""

    field_path: str
    start: int
    stop: int


@dataclass(frozen=True)
class Template:
    """One path: literal segments, "*" for one segment, at most one "**" for one or more, and an optional ":verb"."""

    text: str
    segments: tuple[str, ...]
    variables: tuple[Variable, ...]
    verb: str = ""

    @classmethod
    def parse(cls, text: str) -> "Template":
        """Read "/a/{b=**}/c:verb". Raises ValueError when it is not one of these templates."""
        path, verb = _split_verb(text)
        if not path.startswith("/"):
            raise ValueError(f"template {text!r} does not start with /")
        segments: list[str] = []
        variables: list[Variable] = []
        for piece in _PIECE.findall(path):
            inner = [piece]
            variable = _VARIABLE.fullmatch(piece)
            if variable:
                inner = (variable["inner"] or ONE).split("/")
                variables.append(Variable(variable["field"], len(segments), len(segments) + len(inner)))
            elif piece.startswith("{"):
                raise ValueError(f"template {text!r}: {piece} is not a variable")
            segments.extend(inner)
        if segments.count(MANY) > 1:
            raise ValueError(f"template {text!r} has more than one **")
        return cls(text, tuple(segments), tuple(variables), verb)

    @property
    def specificity(self) -> tuple[int, int, int, str]:
        """Sort key; the largest wins: more literal text, then a verb, then fewer open ends, then the text itself."""
        literals = sum(segment not in (ONE, MANY) for segment in self.segments)
        return (literals, int(bool(self.verb)), -self.segments.count(MANY), self.text)

    def match(self, raw_segments: Sequence[str]) -> dict[str, str] | None:
        """Field path -> still encoded text, or None. raw_segments: as `split_path` gives them.

        An encoded slash (%2F) never separates segments, so a model id may be sent either way.
        """
        segments = self._without_verb(raw_segments)
        if segments is None:
            return None
        extra = len(segments) - len(self.segments)
        many = self.segments.index(MANY) if MANY in self.segments else None
        if extra < 0 or (many is None and extra):
            return None
        # Position of every template segment in the path; whatever is left over belongs to "**".
        starts = [at if many is None or at <= many else at + extra for at in range(len(self.segments) + 1)]
        for at, segment in enumerate(self.segments):
            if segment not in (ONE, MANY) and unquote(segments[starts[at]]) != segment:
                return None
        return {
            variable.field_path: "/".join(segments[starts[variable.start] : starts[variable.stop]])
            for variable in self.variables
        }

    def _without_verb(self, raw_segments: Sequence[str]) -> Sequence[str] | None:
        if not self.verb:
            return raw_segments
        last = re.sub("%3a", ":", raw_segments[-1], flags=re.IGNORECASE) if raw_segments else ""
        if not last.endswith(f":{self.verb}"):
            return None
        return [*raw_segments[:-1], last.removesuffix(f":{self.verb}")]


def split_path(raw_path: str) -> list[str]:
    """The segments of a raw path. Repeated and trailing slashes count as one: people join base URLs carelessly."""
    return [segment for segment in raw_path.split("/") if segment]


def _split_verb(text: str) -> tuple[str, str]:
    colon = text.rfind(":")
    if colon > max(text.rfind("/"), text.rfind("}")) or text[colon - 1 : colon] == "}":
        return text[:colon], text[colon + 1 :]
    return text, ""
