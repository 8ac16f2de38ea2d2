"""The persist benchmark runs, and its bars are judged the right way round."""

from __future__ import annotations

import json

import pytest

from tidemark.bench import persist, persist_latency
from tidemark.bench.persist import Bar, Size, bars, run


def test_a_bar_bounds_from_one_side():
    assert Bar("m", "", least=64).holds(64)
    assert not Bar("m", "", least=64).holds(63.9)
    assert Bar("m", "", most=3).holds(3)
    assert not Bar("m", "", most=3).holds(3.1)
    assert str(Bar("m", "", most=1.5)) == "≤ 1.5"


def test_prints_all_metrics_as_json_last(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    names = "compaction_peak_mib compaction_peak_anonymous_mib compaction_bound_mib shard_mib"
    compaction = dict.fromkeys([*names.split(), "compaction_mib_s", "compaction_rows_s"], 1.0)
    monkeypatch.setattr(persist, "measure_compaction", lambda *_: compaction)
    monkeypatch.setattr(persist_latency, "WARM", 5)
    monkeypatch.setattr(persist, "QUICK", Size(20, 20, 60, 60, 1, 2, 1))
    run(quick=True)
    found = json.loads(capsys.readouterr().out.splitlines()[-1])
    for bar in bars(found["compaction_bound_mib"]):
        assert found[bar.metric] > 0
