"""The delta of a reduction: running sums of the accumulators over rank give every version of every
touched group. For min and max the heads of the touched groups join the changes; a value counts
while its running count is positive.

Leaves: `delta` (k0.. keys, a0.. arguments, w0.. = argument * _d, _t, _d), `acc` and `head0`.. (the
state before the interval).
"""

from __future__ import annotations

from tidemark.compute.accumulators import Accumulators, accumulators, finish
from tidemark.compute.delta import END_OF_TIME, PRIOR, finished, leaf_sql, window
from tidemark.compute.shape import Reduction, Shape
from tidemark.compute.spell import spelled


def reduce_sql(shape: Shape, *, small: bool) -> str:
    """Versions of the touched groups that begin (+1) or end (-1) in the interval:
    accumulators, extremes, o0.. (the view's columns), `_keep`, `_err`, `_t`, `_d`."""
    tail = shape.tail
    assert isinstance(tail, Reduction)
    acc = accumulators(shape.body, tail)
    keys = [f"k{i}" for i in range(len(acc.keys))]
    sums = [column.name for column in acc.state[len(keys) :]]
    by = ", ".join([*keys, "_t"])
    increments = [
        "_d AS n",
        *(f"CASE WHEN a{i} IS NOT NULL THEN _d ELSE 0L END AS n{i}" for i in acc.counted),
        *(f"w{i} AS s{i}" for i in acc.summed),
    ]
    sources = [
        f"SELECT {', '.join([*keys, '_t', *increments])} FROM {leaf_sql('delta', small)}",
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
    versions = "running"
    for i in acc.ordered:
        known = [*keys, *sums, *_extremes(acc, before=i), "_t", "_next"]
        ctes += _extreme_ctes(i, keys, known, versions, small)
        versions = f"extremes{i}"
    names = [column.name for column in acc.columns]
    outputs = finish(shape.outputs, tail, acc)
    predicates = finish(shape.predicates, tail, acc)
    select = [
        *names,
        *finished(outputs, predicates, names.__getitem__, group=_named(shape, keys)),
        "s._t AS _t",
        "s._d AS _d",
    ]
    exists = ("n <> 0" if tail.threshold else "n > 0") if keys else "true"
    return (
        "WITH "
        + ",\n".join(ctes)
        + "\nSELECT "
        + ",\n       ".join(select)
        + f"\nFROM {versions} LATERAL VIEW stack(2, _t, 1L, _next, -1L) s AS _t, _d"
        + f"\nWHERE s._t >= 0 AND {exists}"
    )


def _named(shape: Shape, keys: list[str]) -> dict[str, str]:
    """The keys by what they are in the first block."""
    block = shape.blocks[0]
    names = [spelled(expr, block.name_of) for expr in block.outputs[: len(keys)]]
    return dict(zip(names, keys, strict=True))


def _extreme_ctes(
    arg: int, keys: list[str], known: list[str], versions: str, small: bool
) -> list[str]:
    """Every version so far, with the least and the greatest value of `arg` alive in it."""
    by = ", ".join([*keys, "v", "_t"])
    selected = ", ".join([*keys, f"a{arg} AS v", "_t", "_d"])
    heads = ", ".join([*keys, "v", f"{PRIOR} AS _t", "_diff AS _d"])
    # Without keys the same for all, which Spark cannot know: without any equality it broadcasts.
    same = [f"r.{k} <=> l.{k}" for k in keys] or ["r._t * 0 = l._t * 0"]
    on = " AND ".join([*same, "l._live > 0", "r._t >= l._t", "r._t < l._until"])
    group = ", ".join(f"r.{name}" for name in known)
    return [
        f"values{arg} AS (\n  SELECT {by}, sum(_d) AS _d\n  FROM ("
        f"SELECT {selected} FROM {leaf_sql('delta', small)}\n    UNION ALL "
        f"SELECT {heads} FROM {leaf_sql(f'head{arg}', small)})\n"
        f"  WHERE v IS NOT NULL\n  GROUP BY {by})",
        f"lives{arg} AS (\n  SELECT {by}, sum(_d) OVER ({window([*keys, 'v'])}) AS _live,\n"
        f"    coalesce(lead(_t) OVER ({window([*keys, 'v'])}), {END_OF_TIME}) AS _until\n"
        f"  FROM values{arg})",
        f"extremes{arg} AS (\n  SELECT {group}, min(l.v) AS lo{arg}, max(l.v) AS hi{arg}\n"
        f"  FROM {versions} r LEFT JOIN lives{arg} l ON {on}\n  GROUP BY {group})",
    ]


def _extremes(acc: Accumulators, *, before: int) -> list[str]:
    return [f"{end}{i}" for i in acc.ordered if i < before for end in ("lo", "hi")]
