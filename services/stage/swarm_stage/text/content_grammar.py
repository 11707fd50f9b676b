"""What callers ask of a reply's content, checked and as a grammar of its own for llguidance. Pure; compiles nothing."""

import json
import re
from collections.abc import Mapping
from typing import Any

from silentswarm.core.v1 import generation_pb2
from swarm_core.errors import BadRequest

DEPTH_MAX = 64  # of a schema's brackets; the library reads no deeper than 128
REGEX_CHARS_MAX = 16 * 1024
CHOICES_MAX = 1024
CONSTRAINT_FIELD = "constraint"
NO_BLANKS = {"whitespace_flexible": False}
_COUNTED = re.compile(r"\{\d+(?:,\d*)?\}")
# What a regex is made of, as far as its repetitions go: classes, escapes, counts, and single characters.
_REGEX_TOKEN = re.compile(r"\\[pPxuU]\{[^}]*\}|\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|\{\d+(?:,\d*)?\}|.", re.DOTALL)


def content_part(constraint: generation_pb2.Constraint) -> dict[str, Any]:
    """What the content is to be, as a grammar of its own. Raises BadRequest."""
    kind = constraint.WhichOneof("kind")
    if kind == "json_object":
        return {"json_schema": {"type": "object", "x-guidance": NO_BLANKS}}
    if kind == "json_schema":
        schema = _schema_of(constraint.json_schema)
        check_schema(schema, CONSTRAINT_FIELD)
        is_strict = constraint.strict
        options = {**NO_BLANKS, "lenient": not is_strict, "coerce_one_of": not is_strict}
        return {"json_schema": {**schema, "x-guidance": options}}
    if kind == "regex":
        check_regex(constraint.regex, CONSTRAINT_FIELD)
        return {"lark_grammar": f"start: /{_escaped_slashes(constraint.regex)}/"}
    if kind == "grammar":
        if not constraint.grammar.strip():
            raise BadRequest("the grammar is empty", field=CONSTRAINT_FIELD)
        return {"lark_grammar": constraint.grammar}
    if kind == "choices":
        texts = constraint.choices.texts
        if not texts or not all(texts) or len(texts) > CHOICES_MAX:
            raise BadRequest(f"choices are 1 to {CHOICES_MAX} texts, none of them empty", field=CONSTRAINT_FIELD)
        return {"lark_grammar": "start: " + " | ".join(map(quoted, texts))}
    raise BadRequest("a constraint says nothing", field=CONSTRAINT_FIELD)


def _schema_of(text: str) -> dict[str, Any]:
    try:
        schema = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise BadRequest(f"the JSON schema cannot be read: {error}", field=CONSTRAINT_FIELD) from None
    if not isinstance(schema, dict):
        raise BadRequest("the JSON schema is no object", field=CONSTRAINT_FIELD)
    return schema


def check_schema(schema: Mapping[str, Any], field: str) -> None:
    """Raises BadRequest for one that is too deep, refers elsewhere, or has a pattern that is no regex."""
    waiting: list[tuple[Any, int]] = [(schema, 1)]
    while waiting:
        value, depth = waiting.pop()
        if depth > DEPTH_MAX:
            raise BadRequest(f"a JSON schema is nested deeper than {DEPTH_MAX}", field=field)
        if isinstance(value, list):
            waiting += [(each, depth + 1) for each in value]
        elif isinstance(value, Mapping):
            reference, pattern = value.get("$ref"), value.get("pattern")
            if isinstance(reference, str) and not reference.startswith("#"):
                raise BadRequest(f"$ref {reference[:80]!r} is not in the schema; nothing is fetched", field=field)
            if isinstance(pattern, str):
                check_regex(pattern, field)
            waiting += [(each, depth + 1) for each in value.values()]


def check_regex(regex: str, field: str) -> None:
    """Raises BadRequest for an empty or overlong one, and for a repetition of a repetition ("foo**").

    The library takes that as it is written; whoever writes it has made a mistake, and other engines say so.
    """
    if not regex or len(regex) > REGEX_CHARS_MAX:
        raise BadRequest(f"a regular expression has 1 to {REGEX_CHARS_MAX:,} characters", field=field)
    before, count = "", 0  # repetitions that stand before; a second one may only be the "?" of a lazy one
    for token in _REGEX_TOKEN.findall(regex):
        is_repetition = token in ("*", "+", "?") or _COUNTED.fullmatch(token) is not None
        count = count + 1 if is_repetition else 0
        if count > 2 or (count == 2 and token != "?"):
            raise BadRequest(f"the regular expression repeats a repetition: {before}{token}", field=field)
        before = token


def _escaped_slashes(regex: str) -> str:
    """As Lark writes regexes, between slashes on one line."""
    parts, is_escaped = [], False
    for letter in regex:
        if letter == "/" and not is_escaped:
            parts.append("\\/")
        elif letter == "\n":
            parts.append("n" if is_escaped else "\\n")
        else:
            parts.append(letter)
        is_escaped = letter == "\\" and not is_escaped
    return "".join(parts)


def quoted(text: str) -> str:
    """A text as Lark quotes it."""
    return json.dumps(text, ensure_ascii=False)
