"""The delta plan: how a shape's output changes when its inputs do, as Spark SQL text.

A tick covers an interval [lower, upper) that may hold many distinct times. They are numbered
0 .. n-1 (ranks: the SQL's constants then never change, and neither does its compiled form), and
everything known before the interval is at rank -1. At most two queries turn updates into updates,
exact at every rank:

BODY     joins are bilinear, and time is the later of the two sides, so one join does it all:

             SELECT outputs, greatest(l0_t, l1_t) AS _t, l0_d * l1_d AS _d
             FROM leaf0 JOIN leaf1 ON ...       each leaf: what was there (rank -1), and changes
             WHERE greatest(l0_t, l1_t) >= 0    what was there joined with itself is old news

         A body of several blocks is their UNION ALL; one that is taken away has -_d.

TAIL     versions of the touched groups: one begins at its rank (+1) and ends where the next begins
         (-1). Sums come from running accumulators (reduce.py); what needs rows sees those of its
         group, or as many from their head as can matter (groups.py).

The leaves at rank -1 come from look-ups in arrangements, following the join's equalities from
the changed rows outward (`probes`). A look-up may bring more rows than needed, never fewer: the
SQL applies every predicate again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec

from tidemark.compute.arrays import loaded
from tidemark.compute.expr import Expr
from tidemark.compute.plan import Get
from tidemark.compute.render_expr import error, value
from tidemark.compute.shape import Block, Shape, edges
from tidemark.compute.spell import located, values_sql
from tidemark.compute.table_functions import as_call, generator, rows_error

PRIOR = -1
END_OF_TIME = 2**31 - 1


class Probe(msgspec.Struct, frozen=True):
    """Rows of leaf `into` whose `into_columns` equal some known row's `from_columns`.

    Without columns it is all rows: a join that no equality helps.
    """

    from_leaf: int
    into: int
    from_columns: tuple[int, ...]
    into_columns: tuple[int, ...]


def probes(block: Block, start: int) -> tuple[Probe, ...]:
    """From changes of leaf `start`, every other leaf, by the best equality that leads to it.

    First come equalities with a key of the leaf, then those with a key of where they come from
    (a few rows each, most likely), then any others; what none leads to is read whole.
    """
    both = [
        probe
        for edge in edges(block)
        for probe in (
            Probe(edge.left, edge.right, edge.left_columns, edge.right_columns),
            Probe(edge.right, edge.left, edge.right_columns, edge.left_columns),
        )
    ]
    reached, found = {start}, []
    while len(reached) < len(block.leaves):
        possible = [
            probe for probe in both if probe.from_leaf in reached and probe.into not in reached
        ]
        if possible:
            best = min(possible, key=lambda probe: _rank(block, probe))
        else:
            rest = next(leaf for leaf in range(len(block.leaves)) if leaf not in reached)
            best = Probe(start, rest, (), ())
        reached.add(best.into)
        found.append(best)
    return tuple(found)


def _rank(block: Block, probe: Probe) -> int:
    if _has_key(block, probe.into, probe.into_columns):
        return 0
    return 1 if _has_key(block, probe.from_leaf, probe.from_columns) else 2


def _has_key(block: Block, leaf: int, columns: tuple[int, ...]) -> bool:
    get = block.leaves[leaf]
    return isinstance(get, Get) and any(set(key) <= set(columns) for key in get.keys)


def body_sql(shape: Shape, *, small: bool) -> str:
    """Changes of the body's outputs: o0.., `_err`, `_t`, `_d`, unconsolidated."""
    texts, first = [], 0
    for block in shape.blocks:
        texts.append(block_sql(block, first, small=small))
        first += len(block.leaves)
    return "\nUNION ALL\n".join(texts)


def block_sql(block: Block, first: int = 0, *, small: bool) -> str:
    """One block's share; its leaves are leaf`first` and those that follow."""
    made = [f"f{at}.g{i}" for at, flat in enumerate(block.flat) for i in range(len(flat.made))]

    def column(index: int) -> str:
        if index >= block.width:
            return made[index - block.width]
        leaf = block.leaf_of(index)
        return f"l{leaf}_c{index - block.offset(leaf)}"

    count = len(block.leaves)
    times = [f"l{leaf}_t" for leaf in range(count)]
    time = f"greatest({', '.join(times)})" if count > 1 else "l0_t"
    rows_fail = [rows_error(flat.fn, flat.args, column) for flat in block.flat]
    errors = [
        located(failed, expr, block.name_of, column)
        for expr, failed in [
            *zip((as_call(flat.fn, flat.args) for flat in block.flat), rows_fail, strict=True),
            *((expr, error(expr, column)) for expr in (*block.predicates, *block.outputs)),
        ]
        if failed is not None
    ]
    diff = " * ".join(f"l{leaf}_d" for leaf in range(count))
    if block.negated:
        # What an error takes away is not known: it counts wherever it happens.
        failed = f"WHEN {first_error(errors)} IS NOT NULL THEN {diff}"
        diff = f"CASE {failed} ELSE - ({diff}) END" if errors else f"- ({diff})"
    select = [
        *(f"{value(e, column)} AS o{i}" for i, e in enumerate(block.outputs)),
        f"{first_error(errors)} AS _err",
        f"{time} AS _t",
        f"{diff} AS _d",
    ]
    source, left = _joined(block, first, column, small)
    where = [f"{time} >= 0"]
    for predicate in reversed(left):
        # A row that a table function failed on has nothing to be asked about.
        made_by = [failed for failed in rows_fail if failed and -1 in block.leaves_of(predicate)]
        tests = [*(f"({failed}) IS NOT NULL" for failed in made_by), holds(predicate, column)]
        where.insert(0, f"({' OR '.join(tests)})" if made_by else tests[0])
    return "\n".join(
        [
            "SELECT " + ",\n       ".join(select),
            f"FROM {source}",
            *_laterals(block, rows_fail, column),
            "WHERE " + "\n  AND ".join(where),
        ]
    )


def _joined(
    block: Block, first: int, column: Callable[[int], str], small: bool
) -> tuple[str, list[Expr]]:
    """The leaves side by side, and the predicates that are still to be asked.

    Small leaves are joined one after the other, each time in one partition: Spark does not see by
    itself that a join of three needs no exchange. Of large ones it keeps the order, too, if any is
    to be broadcast.
    """
    leaves = [_renamed(block, leaf, first, small) for leaf in range(len(block.leaves))]
    left = list(block.predicates)
    if not small or len(leaves) < 3:
        places = [0, *(probe.into for probe in probes(block, 0))]
        return " CROSS JOIN ".join(leaves[place] for place in places), left
    reached, source = {0}, leaves[0]
    for probe in probes(block, 0):
        reached.add(probe.into)
        now = [predicate for predicate in left if block.leaves_of(predicate) <= reached]
        left = [predicate for predicate in left if predicate not in now]
        where = f" WHERE {' AND '.join(holds(p, column) for p in now)}" if now else ""
        joined = f"{source} CROSS JOIN {leaves[probe.into]}{where}"
        source = f"(SELECT /*+ COALESCE(1) */ * FROM {joined})"
    return source, left


def _renamed(block: Block, leaf: int, first: int, small: bool) -> str:
    """A leaf whose columns have names of their own."""
    names = [f"c{i} AS l{leaf}_c{i}" for i in range(len(block.leaves[leaf].columns))]
    hint = "/*+ COALESCE(1) */ " if small else ""
    listed = ", ".join([*names, f"_t AS l{leaf}_t", f"_d AS l{leaf}_d"])
    return f"(SELECT {hint}{listed} FROM leaf{first + leaf})"


def _laterals(block: Block, failed: list[str | None], column: Callable[[int], str]) -> list[str]:
    views = []
    for at, flat in enumerate(block.flat):
        args = [loaded(value(arg, column), arg.type) for arg in flat.args]
        names = ", ".join(f"g{i}" for i in range(len(flat.made)))
        rows = generator(flat.fn, args, len(flat.made), failed[at])
        views.append(f"LATERAL VIEW {rows} f{at} AS {names}")
    return views


def window(keys: list[str]) -> str:
    partition = f"PARTITION BY {', '.join(keys)} " if keys else ""
    return f"{partition}ORDER BY _t"


def leaf_sql(name: str, small: bool) -> str:
    # One partition everywhere means no exchange anywhere.
    return f"(SELECT /*+ COALESCE(1) */ * FROM {name})" if small else name


def holds(predicate: Expr, column: Callable[[int], str]) -> str:
    """The row passes, or the predicate failed on it: then the row goes on as an error."""
    passed, failed = value(predicate, column), error(predicate, column)
    return f"({passed})" if failed is None else f"(({failed}) IS NOT NULL OR ({passed}))"


def first_error(errors: list[str]) -> str:
    if not errors:
        return "CAST(NULL AS STRING)"
    return errors[0] if len(errors) == 1 else f"coalesce({', '.join(errors)})"


def finished(
    outputs: tuple[Expr, ...],
    predicates: tuple[Expr, ...],
    column: Callable[[int], str],
    failed: str | None = None,
    group: Mapping[str, str] | None = None,
) -> list[str]:
    """The select list of a tail's end: o0.., `_keep`, `_err`.

    A group that a predicate drops does not fail; one that has `failed` already does.
    """
    errors = [error(expr, column) for expr in (*predicates, *outputs)]
    found = first_error([text for text in errors if text is not None])
    if predicates:
        passes = " AND ".join(holds(expr, column) for expr in predicates)
        found = f"CASE WHEN {passes} THEN {found} END"
    if failed is not None:
        found = f"coalesce({failed}, {found})"
    if group and (failed is not None or any(errors)):
        found = f"concat({found}, ' in the group where ', {values_sql(group)})"
    keep = [f"coalesce({value(expr, column)}, false)" for expr in predicates]
    return [
        *(f"{value(expr, column)} AS o{i}" for i, expr in enumerate(outputs)),
        f"{' AND '.join(keep) or 'true'} AS _keep",
        f"{found} AS _err",
    ]
