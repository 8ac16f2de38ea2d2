"""How log lines look: text or JSON, from a level on, with the ids of what runs."""

from __future__ import annotations

import io
import json

import pytest
import structlog
from structlog.contextvars import bound_contextvars

from tidemark.logs import FORMAT, LEVEL, configure_logging


def lines(monkeypatch: pytest.MonkeyPatch, format_: str, level: str) -> list[str]:
    monkeypatch.setenv(FORMAT, format_)
    monkeypatch.setenv(LEVEL, level)
    file = io.StringIO()
    configure_logging(file=file)
    log = structlog.get_logger("test")
    with bound_contextvars(session=7, statement=9):
        log.info("something happened", table="t")
    log.warning("something else")
    return file.getvalue().splitlines()


def test_json_has_the_session_and_the_statement(monkeypatch: pytest.MonkeyPatch):
    first, second = (json.loads(line) for line in lines(monkeypatch, "json", "info"))
    assert (first["event"], first["level"], first["table"]) == ("something happened", "info", "t")
    assert (first["session"], first["statement"]) == (7, 9)
    assert "session" not in second


def test_text_is_one_line_an_event(monkeypatch: pytest.MonkeyPatch):
    first, _ = lines(monkeypatch, "text", "info")
    assert 'event="something happened"' in first
    assert "session=7" in first


def test_the_level_leaves_out_what_is_below(monkeypatch: pytest.MonkeyPatch):
    (only,) = lines(monkeypatch, "text", "warning")
    assert "something else" in only
