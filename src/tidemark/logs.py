"""Logging, configured in one place: one line an event, as key=value."""

from __future__ import annotations

import logging
import sys
from typing import TextIO

import structlog


def configure_logging(level: int = logging.INFO, file: TextIO = sys.stderr) -> None:
    """One line an event, to stderr unless told otherwise."""
    # It would log statements that it does not understand, and these may have secrets.
    logging.getLogger("sqlglot").setLevel(logging.CRITICAL)
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            structlog.processors.LogfmtRenderer(key_order=("timestamp", "level", "event")),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.PrintLoggerFactory(file),
    )
