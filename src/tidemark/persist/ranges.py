"""Ranges of positions: how a merge is cut into pieces that are done apart from each other.

A run's parts are in order and each says where it begins, so what a range needs of a run is known
without reading it:

    run 1   |03 .. 20|20 .. 41|47 .. 90|     a part's last position is at most the first of the
    run 2   |02 ..... 33|35 ........ 88|     next, and may be that one: a row's history can lie
                  ^           ^              in two parts
    ranges  -- 18 --- 18..44 --- 44 --       each position belongs to one range

Bounds need not be where parts begin. Hashes lie evenly between the beginnings of two parts, as a
rule, so that bounds are put where equal shares of the memory should lie between them; if they do
not lie so, the pieces are of different sizes and the result is the same.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from itertools import accumulate, pairwise
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from tidemark.persist.blob import Blob
from tidemark.persist.order import order
from tidemark.persist.part import conform, read_chunks
from tidemark.persist.state import Part, Run

Position = tuple[int, int]


class Range(NamedTuple):
    """Positions from `start` on that lie before `end`; None is no bound."""

    start: Position | None = None
    end: Position | None = None


EVERYTHING = Range()


def overlapping(run: Run, within: Range) -> Run:
    """The parts of `run` that may hold something in the range; all that say nothing may."""
    firsts = [part.first for part in run]
    return tuple(
        part
        for part, first, following in zip(run, firsts, [*firsts[1:], None], strict=True)
        if (first is None or within.end is None or first < within.end)
        and (following is None or within.start is None or following >= within.start)
    )


def read_from(
    blob: Blob, part: Part, schema: pa.Schema, *, key: tuple[str, ...], start: Position | None
) -> Iterator[pa.Table]:
    """The chunks of an ordered part, without most of those that lie before `start`."""
    if start is None or part.first is None or part.first >= start:
        return read_chunks(blob, part, schema)

    def begin(file: pq.ParquetFile) -> int:
        """The last row group that begins before it; those before that one end there."""

        def first(group: int) -> Position:
            row = next(file.iter_batches(1, row_groups=[group], use_threads=False))
            return order(conform(pa.Table.from_batches([row]), schema), key).at(0)

        return max(bisect_left(range(file.num_row_groups), start, key=first) - 1, 0)

    return read_chunks(blob, part, schema, begin=begin)


def cut(runs: list[Run], count: int, *, key: tuple[str, ...]) -> list[Range]:
    """At most `count` ranges that hold about as much of `runs` each, everything in all.

    Parts that do not say where they begin are left out of account.
    """
    spans = [span for run in runs for span in _spans(run, _END if key else _END_OF_KEY)]
    edges = sorted({edge for span in spans for edge in (span.start, span.end)})
    weights = [0.0] * max(len(edges) - 1, 0)
    for span in spans:
        for at in range(bisect_left(edges, span.start), bisect_left(edges, span.end)):
            weights[at] += span.memory * (edges[at + 1] - edges[at]) / (span.end - span.start)
    sums = list(accumulate(weights))
    bounds = set()
    for share in range(1, count if sums else 0):
        target = sums[-1] * share / count
        at = min(bisect_left(sums, target), len(weights) - 1)
        over = (sums[at] - target) / weights[at] if weights[at] else 0.0
        bounds.add(edges[at + 1] - int((edges[at + 1] - edges[at]) * min(over, 1.0)))
    inner = [divmod(bound, 1 << 64) for bound in sorted(bounds) if edges[0] < bound < edges[-1]]
    return [Range(start, end) for start, end in pairwise([None, *inner, None])]


_END, _END_OF_KEY = 1 << 128, 1 << 64
"""Where positions end, as one number; without a key all key hashes are 0."""


class _Span(NamedTuple):
    start: int
    end: int
    memory: int


def _spans(run: Run, end: int) -> Iterator[_Span]:
    known = [(p.first[0] << 64 | p.first[1], p.memory) for p in run if p.first is not None]
    for (start, memory), (following, _) in pairwise([*known, (end, 0)]):
        yield _Span(start, max(following, start + 1), memory)
