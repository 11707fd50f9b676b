"""Logs of every process: one structured line an event, on stderr. No secret is ever a field, nor left in a text.

Lines are read in terminals, and what someone sent (a path, a name) is in them: control characters are shown, not sent.
"""

import logging
import sys
from collections.abc import Callable, MutableMapping
from typing import Any

import structlog

from swarm_core.secrets import redacted


def configure_logs(
    process: str, level: str = "INFO", as_json: bool = False, also: Callable[[str], None] | None = None
) -> None:
    """Set up structlog once, at start-up. SWARM_LOG_LEVEL and SWARM_LOG_JSON choose level and form.

    also: told of every line, without secrets; must not raise.
    """
    renderer = (
        structlog.processors.JSONRenderer()
        if as_json
        else structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty(), pad_event_to=0)
    )
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            *(() if as_json else (_without_controls,)),  # JSON has escapes of its own
            renderer,
            _without_secrets,
            *(() if also is None else (_telling(also),)),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelNamesMapping().get(level.upper(), 20)),
        logger_factory=structlog.PrintLoggerFactory(file=sys.stderr),
        cache_logger_on_first_use=True,
    )
    structlog.contextvars.bind_contextvars(process=process)


class _Shown:
    """A text that is printed as Python writes it."""

    def __init__(self, text: str) -> None:
        self._text = text

    def __repr__(self) -> str:
        return repr(self._text)


def _without_controls(logger: object, name: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    for key, value in event.items():
        if not isinstance(value, str) or value.isprintable():
            continue
        if key in ("event", "exception"):  # printed as they are, with their lines
            event[key] = "".join(each if each.isprintable() or each in "\n\t" else repr(each)[1:-1] for each in value)
        else:
            event[key] = _Shown(value)
    return event


def _without_secrets(logger: object, name: str, line: str) -> str:
    """The last word: what someone sent, an exception among it, may hold a token."""
    return redacted(line)


def _telling(also: Callable[[str], None]) -> Callable[[object, str, str], str]:
    """The last processor: tells another reader of the line."""

    def tell(logger: object, name: str, line: str) -> str:
        also(line)
        return line

    return tell
