"""structlog for everything: JSON for machines, console on a terminal; secrets never get in.

One line per delivery (the canonical log line), with a constant message and facts as keys.
"""

from __future__ import annotations

import logging
import sys
from typing import cast

import structlog

from shared.settings import ObserveSettings


def set_up_logs(settings: ObserveSettings, **always: str) -> None:
    """Configure structlog and the standard library's loggers alike; `always` stands on every line."""
    console = settings.log_format == "console" or (settings.log_format == "auto" and sys.stderr.isatty())
    shared: list[structlog.typing.Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.format_exc_info,
    ]
    # Plain tracebacks: the pretty ones print local variables, which hold questions and keys.
    renderer: structlog.typing.Processor = (
        structlog.dev.ConsoleRenderer(exception_formatter=structlog.dev.plain_traceback)
        if console
        else structlog.processors.JSONRenderer(ensure_ascii=False)
    )
    level = getattr(logging, settings.log_level.upper())
    structlog.configure(
        processors=[*shared[:-1], renderer] if console else [*shared, renderer],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=True,
    )
    structlog.contextvars.bind_contextvars(**always)
    formatter = structlog.stdlib.ProcessorFormatter(processor=renderer, foreign_pre_chain=shared)
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(formatter)
    logging.basicConfig(handlers=[handler], level=max(level, logging.WARNING), force=True)


def logger(name: str) -> structlog.typing.FilteringBoundLogger:
    return cast(structlog.typing.FilteringBoundLogger, structlog.get_logger(name))
