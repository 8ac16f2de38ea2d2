"""The delta of a reduction: running sums of the accumulators over rank give every version of every
touched group. For min and max a value counts while its running count is positive. Of the values
that count from one rank to another only the extreme one is compared with others.

Leaves: `delta` (k0.. keys, a0.. arguments, w0.. = argument * _d, _t, _d), `acc` (the sums before the
interval) and `values0`.. (k0.., v, _t, _d: values of an argument that can be extreme, those from
before at rank -1).
"""

from __future__ import annotations

from tidemark.compute.accumulators import CHOOSE, Accumulators, accumulators, finish
from tidemark.compute.delta import END_OF_TIME, PRIOR, finished, leaf_sql, window
from tidemark.compute.shape import Reduction, Shape
from tidemark.compute.spell import spelled


def reduce_sql(shape: Shape, *, small: bool) -> str:
    """Versions of the touched groups that begin (+1) or end (-1) in the interval:
    accumulators, extremes, o0.. (the view's columns), `_keep`, `_err`, `_t`, `_d`."""
    acc, keys, sums = _parts(shape)
    by = ", ".join([*keys, "_t"])
    sources = [
        f"SELECT {', '.join([*keys, '_t', *_increments(acc)])} FROM {leaf_sql('delta', small)}",
        f"SELECT {', '.join([*keys, f'{PRIOR} AS _t', *sums])} FROM {leaf_sql('acc', small)}",
    ]
    if not keys:
        # One group that always exists: it must have a version even if nothing ever came.
        zeros = ", ".join(f"CAST(0 AS {c.type.spark}) AS {c.name}" for c in acc.state)
        sources.append(f"SELECT {'/*+ COALESCE(1) */ ' * small}0 AS _t, {zeros}")
    everything = "\n    UNION ALL ".join(sources)
    ctes = [
        f"changes AS (\n  SELECT {by}, {', '.join(f'sum({s}) AS {s}' for s in sums)}\n"
        f"  FROM ({everything})\n  GROUP BY {by})",
        f"running AS (\n  SELECT {by}, "
        + ", ".join(f"sum({s}) OVER ({window(keys)}) AS {s}" for s in sums)
        + f",\n    lead(_t) OVER ({window(keys)}) AS _next\n  FROM changes)",
    ]
    versions, known = "running", [*keys, *sums]
    for i in acc.ordered:
        ctes += _extreme_ctes(i, acc.ends(i), keys, [*known, "_t", "_next"], versions, small)
        versions = f"extremes{i}"
        known += [f"{end}{i}" for end in acc.ends(i)]
    stacked = f"{versions} LATERAL VIEW stack(2, _t, 1L, _next, -1L) s AS _t, _d"
    return _versions(shape, acc, ctes, ["s._t AS _t", "s._d AS _d"], stacked, "s._t >= 0 AND ")


def first_sql(shape: Shape) -> str:
    """The same where nothing was there before, and `delta` is rows that are there (_d > 0)."""
    acc, keys, sums = _parts(shape)
    # Without keys there is one group, even of nothing.
    zeros = [f"CAST(0 AS {column.type.spark})" for column in acc.state[len(keys) :]]
    totals = [
        f"sum({s}) AS {s}" if keys else f"coalesce(sum({s}), {zero}) AS {s}"
        for s, zero in zip(sums, zeros, strict=True)
    ]
    extremes = [f"{CHOOSE[end]}(a{i}) AS {end}{i}" for i, end in acc.extremes]
    args = [f"a{i}" for i in acc.ordered]
    grouped = f"\n  GROUP BY {', '.join(keys)}" if keys else ""
    first = (
        f"first AS (\n  SELECT {', '.join([*keys, *totals, *extremes])}\n"
        f"  FROM (SELECT {', '.join([*keys, *args, *_increments(acc)])} FROM delta){grouped})"
    )
    return _versions(shape, acc, [first], ["0 AS _t", "1L AS _d"], "first", "")


def _parts(shape: Shape) -> tuple[Accumulators, list[str], list[str]]:
    """The accumulators, and the names of keys and sums."""
    assert isinstance(shape.tail, Reduction)
    acc = accumulators(shape.body, shape.tail)
    names = [column.name for column in acc.state]
    return acc, names[: len(acc.keys)], names[len(acc.keys) :]


def _increments(acc: Accumulators) -> list[str]:
    return [
        "_d AS n",
        *(f"CASE WHEN a{i} IS NOT NULL THEN _d ELSE 0L END AS n{i}" for i in acc.counted),
        *(f"w{i} AS s{i}" for i in acc.summed),
    ]


def _versions(
    shape: Shape, acc: Accumulators, ctes: list[str], when: list[str], source: str, where: str
) -> str:
    """The end of both: versions that exist, with the view's columns."""
    tail = shape.tail
    assert isinstance(tail, Reduction)
    names = [column.name for column in acc.columns]
    keys = names[: len(acc.keys)]
    outputs = finish(shape.outputs, tail, acc)
    predicates = finish(shape.predicates, tail, acc)
    shown = finished(outputs, predicates, names.__getitem__, group=_named(shape, keys))
    exists = ("n <> 0" if tail.threshold else "n > 0") if keys else "true"
    return (
        "WITH "
        + ",\n".join(ctes)
        + "\nSELECT "
        + ",\n       ".join([*names, *shown, *when])
        + f"\nFROM {source}\nWHERE {where}{exists}"
    )


def _named(shape: Shape, keys: list[str]) -> dict[str, str]:
    """The keys by what they are in the first block."""
    block = shape.blocks[0]
    names = [spelled(expr, block.name_of) for expr in block.outputs[: len(keys)]]
    return dict(zip(names, keys, strict=True))


def _extreme_ctes(
    arg: int, ends: tuple[str, ...], keys: list[str], known: list[str], versions: str, small: bool
) -> list[str]:
    """Every version so far, with the least or the greatest value of `arg` alive in it, or both."""
    same_value = window([*keys, "v"])
    # Without keys the same for all, which Spark cannot know: without any equality it broadcasts.
    same = [f"r.{k} <=> l.{k}" for k in keys] or ["r._t * 0 = l._t * 0"]
    on = " AND ".join([*same, "r._t >= l._t", "r._t < l._until"])
    group = ", ".join(f"r.{name}" for name in known)
    span = ", ".join([*keys, "_t", "_until"])
    chosen = ", ".join(f"{CHOOSE[end]}(v) AS {end}" for end in ends)
    found = ", ".join(f"{CHOOSE[end]}(l.{end}) AS {end}{arg}" for end in ends)
    return [
        # Of several changes at one rank only the last reaches beyond it.
        f"lives{arg} AS (\n  SELECT {', '.join([*keys, 'v', '_t'])},"
        f" sum(_d) OVER ({same_value}) AS _live,\n"
        f"    coalesce(lead(_t) OVER ({same_value}), {END_OF_TIME}) AS _until\n"
        f"  FROM {leaf_sql(f'values{arg}', small)})",
        f"spans{arg} AS (\n  SELECT {span}, {chosen}\n  FROM lives{arg}\n"
        f"  WHERE _live > 0 AND _t < _until\n  GROUP BY {span})",
        f"extremes{arg} AS (\n  SELECT {group}, {found}\n"
        f"  FROM {versions} r LEFT JOIN spans{arg} l ON {on}\n  GROUP BY {group})",
    ]
