"""Renders a model's chat template in a sandbox. Bounds its output; its time and memory are bounded by the process."""

import datetime
import json
from functools import lru_cache
from typing import Any, NoReturn

from jinja2 import Environment, Template, nodes
from jinja2.exceptions import SecurityError, TemplateError
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

RENDERED_CHARS_MAX = 8 * 1024 * 1024  # the longest contexts served are a tenth of it


def render(template: str, values: dict[str, Any]) -> dict[str, Any]:
    """{"text": what the template makes of the values}, or {"refused": why, "hostile": whether it tried to escape}."""
    parts: list[str] = []
    length = 0
    try:
        for part in _compiled(template).generate(values):
            length += len(part)
            if length > RENDERED_CHARS_MAX:
                return {"refused": f"it made more than {RENDERED_CHARS_MAX:,} characters", "hostile": True}
            parts.append(part)
    except MemoryError:
        return {"refused": "it took more memory than it may have", "hostile": True}
    except SecurityError as error:
        return {"refused": str(error), "hostile": True}
    except RecursionError:
        return {"refused": "it calls itself without end", "hostile": False}
    except Exception as error:  # what a template does with values of another shape than it expects
        return {"refused": str(error) or type(error).__name__, "hostile": False}
    return {"text": "".join(parts)}


class _Generation(Extension):
    """{% generation %} marks for training what an assistant says; here it is only its body."""

    tags = {"generation"}  # noqa: RUF012 - as jinja declares it

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


@lru_cache(maxsize=4)
def _compiled(template: str) -> Template:
    return _environment().from_string(template)


@lru_cache(maxsize=1)
def _environment() -> Environment:
    """What chat templates are written against: transformers documents these names."""
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, loopcontrols]
    )
    environment.filters["tojson"] = _to_json
    environment.globals["raise_exception"] = _refuse
    environment.globals["strftime_now"] = lambda form: datetime.datetime.now().strftime(form)
    return environment


def _to_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def _refuse(message: str) -> NoReturn:
    raise TemplateError(message)
