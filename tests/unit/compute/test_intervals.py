"""Intervals as constants and as values: how they are read, kept and printed."""

from __future__ import annotations

from decimal import Decimal

import pytest

from tidemark.compute.intervals import (
    cut_off,
    interval_of,
    interval_text,
    kept,
    read_interval,
    seconds_of,
)
from tidemark.errors import DataError, Unsupported

PRINTED = {
    "0": "00:00:00",
    "1.5": "00:00:01.5",
    "0.000001": "00:00:00.000001",
    "86400": "1 day",
    "176405": "2 days 01:00:05",
    "-86400": "-1 days",
    "-90061.25": "-1 days -01:01:01.25",
    "8640000000": "100000 days",
}


@pytest.mark.parametrize("seconds", PRINTED)
def test_printed_as_postgres_does_and_read_back(seconds: str):
    text = interval_text(Decimal(seconds))
    assert text == PRINTED[seconds]
    assert seconds_of(read_interval(text)) == Decimal(seconds)


def test_a_value_has_no_months():
    day = read_interval("36 hours")
    assert kept(day) is day
    for text in ("1 month", "1 year -3 days"):
        with pytest.raises(Unsupported, match="an interval of months cannot be a value"):
            kept(read_interval(text))


def test_a_field_cuts_off_what_is_less():
    assert (
        str(interval_of(cut_off(read_interval("1 day 02:03:04.5"), "MINUTE"))) == "1 day 02:03:00"
    )
    assert str(interval_of(cut_off(read_interval("-02:03:04.5"), "hour"))) == "-02:00:00"
    assert str(interval_of(cut_off(read_interval("1 day 02:03:04.5"), "day"))) == "1 day"
    assert interval_of(cut_off(read_interval("14 months 3 days"), "year")).months == 12
    assert str(interval_of(cut_off(read_interval("1.5 seconds"), "second"))) == "00:00:01.5"


def test_spark_s_own_words_for_fields_cut_nothing_off():
    assert cut_off(read_interval("1500", "milliseconds"), "milliseconds").value == "0 0 1500000"


def test_every_value_can_be_read_back():
    for seconds in (Decimal("99999999999999.999999"), Decimal("-99999999999999.999999")):
        assert seconds_of(read_interval(interval_text(seconds))) == seconds
    for text in ("1157407408 days", "10001 years"):
        with pytest.raises(DataError, match="interval out of range"):
            read_interval(text)
