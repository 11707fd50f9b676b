"""Configuration from the environment: frozen dataclasses whose fields name their variable. Reads what it is given."""

import dataclasses
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from swarm_core.errors import BadRequest

T = TypeVar("T")
_TRUE = {"1", "true", "yes", "on"}
_FALSE = {"0", "false", "no", "off", ""}


def env(variable: str, default: Any, meaning: str) -> Any:
    """A dataclass field read from `variable`; its type is the type of `default` (a Path, bool, int, float or str)."""
    return dataclasses.field(default=default, metadata={"variable": variable, "meaning": meaning})


def from_environment(config: type[T], environ: Mapping[str, str], **overrides: Any) -> T:
    """Build `config` from the environment; an override that is not None wins.

    Raises BadRequest naming the variable and what it must be.
    """
    values: dict[str, Any] = {}
    for field in dataclasses.fields(config):  # type: ignore[arg-type]
        if overrides.get(field.name) is not None:
            values[field.name] = overrides[field.name]
            continue
        variable = field.metadata.get("variable")
        if variable and environ.get(variable, "") != "":
            values[field.name] = _parse(variable, environ[variable], field.default)
    return config(**values)


def variables(config: type) -> dict[str, str]:
    """Variable -> meaning, for docs and the test that every one is documented."""
    return {
        field.metadata["variable"]: field.metadata["meaning"]
        for field in dataclasses.fields(config)
        if "variable" in field.metadata
    }


def describe_variables(config: type) -> str:
    """For `--help`: one line a variable with its meaning, and its default in brackets where there is one to show."""
    fields = [field for field in dataclasses.fields(config) if "variable" in field.metadata]
    return "\n".join(
        f"  {field.metadata['variable']:<30} {field.metadata['meaning']}{_shown(field.default)}" for field in fields
    )


def _shown(default: Any) -> str:
    number = int(default) if isinstance(default, bool) else default
    return f" [{number:g}]" if isinstance(number, int | float) else f" [{default}]" if default else ""


def _parse(variable: str, text: str, default: Any) -> Any:
    """Read `text` as the type of `default`."""
    if isinstance(default, bool):
        if text.lower() in _TRUE or text.lower() in _FALSE:
            return text.lower() in _TRUE
        raise BadRequest(f"{variable}={text!r} is not a switch; use 1 or 0", field=variable)
    parsers: dict[type, Callable[[str], Any]] = {int: int, float: float, Path: lambda raw: Path(raw).expanduser()}
    parse = next((parsers[kind] for kind in parsers if isinstance(default, kind)), str)
    try:
        return parse(text)
    except ValueError:
        raise BadRequest(f"{variable}={text!r} is not a number", field=variable) from None
