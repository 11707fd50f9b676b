"""Logs of every process: one structured line an event, on stderr. No secret is ever a field, nor left in a text."""

import logging
import sys

import structlog

from swarm_core.secrets import redacted


def configure_logs(process: str, level: str = "INFO", as_json: bool = False) -> None:
    """Set up structlog once, at start-up. SWARM_LOG_LEVEL and SWARM_LOG_JSON choose level and form."""
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
            renderer,
            _without_secrets,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelNamesMapping().get(level.upper(), 20)),
        logger_factory=structlog.PrintLoggerFactory(file=sys.stderr),
        cache_logger_on_first_use=True,
    )
    structlog.contextvars.bind_contextvars(process=process)


def _without_secrets(logger: object, name: str, line: str) -> str:
    """The last word: what someone sent, an exception among it, may hold a token."""
    return redacted(line)
