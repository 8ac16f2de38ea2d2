"""LIKE of values at hand: what it means, and that no pattern takes long."""

from __future__ import annotations

import random
import re
import signal
from collections.abc import Iterator

import pytest

from tidemark.control import show_objects
from tidemark.control.like import matcher
from tidemark.control.webhook.functions import FUNCTIONS
from tidemark.errors import DataError

CASES = [
    ("", "", True),
    ("", "%", True),
    ("a", "", False),
    ("ab", "a_", True),
    ("a\nb", "a%b", True),
    ("a\nb", "a_b", True),
    ("aba", "ab%ba", False),
    ("50%", r"50\%", True),
    ("500", r"50\%", False),
    ("a_b", r"a\_%", True),
    ("a\\b", r"a\\b", True),
    ("a.b", "a_b", True),
    ("axb", "a.b", False),
    ("xaab", "%a_%", True),
    ("ba", "%a_%", False),
]


@pytest.mark.parametrize(("text", "pattern", "expected"), CASES)
def test_what_is_like_what(text: str, pattern: str, expected: bool) -> None:
    assert matcher(pattern)(text) is expected


def test_as_a_regular_expression_has_it() -> None:
    rng = random.Random(7)
    for _ in range(20_000):
        pattern = "".join(rng.choices("ab%_", k=rng.randrange(8)))
        text = "".join(rng.choices("ab", k=rng.randrange(10)))
        regex = pattern.replace("%", ".*").replace("_", ".")
        assert matcher(pattern)(text) == bool(re.fullmatch(regex, text)), (text, pattern)


def test_a_pattern_ends_with_no_escape() -> None:
    with pytest.raises(DataError, match="must not end with escape"):
        matcher("a\\")


def test_case_matters_to_like_only() -> None:
    assert FUNCTIONS["ilike"]("Größe", "GRÖ_E")
    assert not FUNCTIONS["like"]("Größe", "GRÖ_E")


@pytest.fixture
def alarm() -> Iterator[None]:
    def rings(*_: object) -> None:
        raise TimeoutError

    before = signal.signal(signal.SIGALRM, rings)
    signal.alarm(20)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.mark.usefixtures("alarm")
def test_no_pattern_takes_long() -> None:
    names = ("name",), [("a" * 63,)]
    assert show_objects.matching(names, "%a" * 60 + "%b")[1] == []
    assert show_objects.matching(names, "%a" * 60 + "%")[1] == names[1]
    assert not FUNCTIONS["like"]("foo" * 300_000, "%foo%bar%")
    assert not FUNCTIONS["ilike"]("FOO" * 300_000, "%foo%o_foo%" * 1_000 + "b")
