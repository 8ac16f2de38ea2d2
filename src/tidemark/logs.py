"""Logging, configured in one place: one line an event, as key=value or as JSON.

What is bound to the context (`session` and `statement` while a statement runs) is in every line
that is written in it. The environment says how, so that replicas do as the server that starts them:

    TIDEMARK_LOG_FORMAT   text (default) or json
    TIDEMARK_LOG_LEVEL    debug, info (default), warning, error
"""

from __future__ import annotations

import logging
import os
import sys
from typing import TextIO

import structlog

FORMAT, LEVEL = "TIDEMARK_LOG_FORMAT", "TIDEMARK_LOG_LEVEL"


def configure_logging(level: int | None = None, file: TextIO = sys.stderr) -> None:
    """One line an event, to stderr unless told otherwise; without a `level`, as the environment
    says."""
    # It would log statements that it does not understand, and these may have secrets.
    logging.getLogger("sqlglot").setLevel(logging.CRITICAL)
    if level is None:
        named = os.environ.get(LEVEL, "info").upper()
        level = logging.getLevelNamesMapping().get(named, logging.INFO)
    if os.environ.get(FORMAT) == "json":
        renderer = structlog.processors.JSONRenderer()
    else:
        renderer = structlog.processors.LogfmtRenderer(key_order=("timestamp", "level", "event"))
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.PrintLoggerFactory(file),
    )
