"""EXPLAIN: a plan as a tree, the delta plan as the SQL that a tick runs, a query's timestamp."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from tidemark.compute.accumulators import EXTREMES
from tidemark.compute.delta import body_sql, probes
from tidemark.compute.fragments import Fragment, Piece, Recursive, fragments_of, round_of
from tidemark.compute.plan import (
    Constant,
    Filter,
    Finish,
    FlatMap,
    Get,
    Join,
    OrderBy,
    OuterJoin,
    Plan,
    Project,
    Reduce,
    TopK,
    Window,
    inputs_of,
)
from tidemark.compute.queries import tail_sql
from tidemark.compute.shape import Reduction, Shape, Temporal, Top, Whole, Windowed
from tidemark.compute.spell import spelled
from tidemark.compute.table_functions import as_call
from tidemark.compute.tails import tail_of


def plan_lines(plan: Plan, names: dict[str, str], depth: int = 0) -> list[str]:
    """The tree, one node a line; `names` gives collections their names."""
    pad = "  " * depth
    match plan:
        case Get(id=id_, columns=columns):
            listed = ", ".join(column.name for column in columns)
            return [f"{pad}Get {names.get(id_, id_)} ({listed})"]
        case Constant(rows=rows):
            return [f"{pad}Constant ({len(rows)} rows)"]
        case Filter(input=input_, predicate=predicate):
            return [f"{pad}Filter {spelled(predicate)}", *plan_lines(input_, names, depth + 1)]
        case Project(input=input_, outputs=outputs):
            listed = ", ".join(map(spelled, outputs))
            return [f"{pad}Project ({listed})", *plan_lines(input_, names, depth + 1)]
        case Join(inputs=inputs, on=on):
            listed = " AND ".join(map(spelled, on)) or "true"
            below = [line for side in inputs for line in plan_lines(side, names, depth + 1)]
            return [f"{pad}Join on {listed}", *below]
        case Reduce(input=input_, keys=keys, aggregates=aggregates):
            group = ", ".join(map(spelled, keys))
            aggs = ", ".join(f"{a.fn}({spelled(a.arg) if a.arg else '*'})" for a in aggregates)
            line = f"{pad}Reduce group by ({group}) aggregates ({aggs})"
            return [line, *plan_lines(input_, names, depth + 1)]
        case Finish(input=input_, order_by=orders, limit=limit, offset=offset):
            line = f"{pad}Finish{_ordered(orders)}{_some(limit, offset)}"
            return [line, *plan_lines(input_, names, depth + 1)]
        case OuterJoin(kind=kind, on=on):
            what = f"{kind.capitalize()} join on {' AND '.join(map(spelled, on)) or 'true'}"
            return [f"{pad}{what}", *_below(plan, names, depth)]
        case FlatMap(fn=fn, args=args):
            return [f"{pad}FlatMap {spelled(as_call(fn, args))}", *_below(plan, names, depth)]
        case TopK(group=group, order_by=orders, limit=limit, offset=offset):
            within = f" group by ({_places(group)})" if group else ""
            what = f"TopK{within}{_ordered(orders)}{_some(limit, offset)}"
            return [f"{pad}{what}", *_below(plan, names, depth)]
        case Window(partition=partition, order_by=orders, functions=functions):
            made = ", ".join(
                f"{each.fn}({', '.join(map(spelled, each.args))})"
                + (f" {each.frame}" if each.frame else "")
                for each in functions
            )
            what = f"Window partition by ({_places(partition)}) order by ({_orders(orders)}) {made}"
            return [f"{pad}{what}", *_below(plan, names, depth)]
        case _:
            return [f"{pad}{type(plan).__name__}", *_below(plan, names, depth)]


def _below(plan: Plan, names: dict[str, str], depth: int) -> list[str]:
    return [line for side in inputs_of(plan) for line in plan_lines(side, names, depth + 1)]


def _places(columns: tuple[int, ...]) -> str:
    return ", ".join(f"#{column}" for column in columns)


def _ordered(orders: tuple[OrderBy, ...]) -> str:
    return f" order by ({_orders(orders)})" if orders else ""


def _some(limit: int | None, offset: int) -> str:
    most = "" if limit is None else f" limit {limit}"
    return most + (f" offset {offset}" if offset else "")


def _orders(orders: tuple[OrderBy, ...]) -> str:
    return ", ".join(f"#{o.index}{' desc' if o.descending else ''}" for o in orders)


Arranged = tuple[str, tuple[str, ...]]
"""A collection, and the columns that it is looked up by; none if it is read whole."""


class Shared(NamedTuple):
    """What other views have: names of views by fragment, and by arrangement of a collection."""

    fragments: Mapping[str, list[str]]
    arrangements: Mapping[Arranged, list[str]]


def shared_by(views: Mapping[str, Plan]) -> Shared:
    """What these views (by name) would share with another."""
    shared = Shared(defaultdict(list), defaultdict(list))
    for name, plan in views.items():
        pieces = fragments_of(plan)
        arranged: set[Arranged] = set()
        for piece in pieces:
            if piece is not pieces[-1]:
                shared.fragments[piece.id].append(name)
            if isinstance(piece, Fragment):
                arranged |= {each for way in _ways(piece.shape) for each in way[1]}
        for each in arranged:
            shared.arrangements[each].append(name)
    return shared


NOTHING_SHARED = Shared({}, {})


def delta_lines(plan: Plan, names: dict[str, str], shared: Shared = NOTHING_SHARED) -> list[str]:
    """What is kept, what a tick looks up, and the SQL that it runs, fragment by fragment."""
    pieces = fragments_of(plan)
    jobs = sum(_jobs(piece.shape) for piece in pieces if isinstance(piece, Fragment))
    rounds = ", and those of each round" if any(isinstance(p, Recursive) for p in pieces) else ""
    lines = [
        "Maintained incrementally: yes",
        f"Spark jobs per tick: at most {jobs}{rounds}; none when nothing changed",
    ]
    # Fragments are known by fingerprints, which nobody wants to read.
    numbered = {piece.id: f"fragment {at}" for at, piece in enumerate(pieces, 1)}
    known = {**names, **numbered}
    for piece in pieces:
        if isinstance(piece, Recursive):
            known |= {piece.result(i): b.name for i, b in enumerate(piece.bindings)}
        title = "the view itself" if piece is pieces[-1] else numbered[piece.id]
        lines += ["", f"{title.capitalize()}:"]
        if others := shared.fragments.get(piece.id):
            lines.append(f"  Shared with {', '.join(others)}")
        lines += [f"  {line}" for line in _piece_lines(piece, known, shared)]
    return lines


def _piece_lines(piece: Piece, names: dict[str, str], shared: Shared) -> list[str]:
    if isinstance(piece, Fragment):
        return _fragment_lines(piece, names, shared)
    lines = [f"Recursion, at most {piece.limit} rounds; each of them:"]
    for fragment in round_of(piece, round_of(piece, None)).fragments:
        lines += [f"  {line}" for line in _fragment_lines(fragment, names, shared)]
    return lines


def _jobs(shape: Shape) -> int:
    return 1 + (tail_sql(shape, small=True) is not None)


def _fragment_lines(fragment: Fragment, names: dict[str, str], shared: Shared) -> list[str]:
    shape = fragment.shape
    lines = ["A tick looks up, besides what changed:"]
    lines += [f"  {line}" for line in _costs(shape, names)] or ["  nothing"]
    lines += ["Arrangements:"]
    lines += [f"  {line}" for line in _arrangements(shape, names, shared)] or ["  none"]
    lines += ["State kept:"]
    for name, kept in tail_of(shape).kept.items():
        listed = ", ".join(column.name for column in kept.columns)
        ordered = f" ordered by ({', '.join(kept.order)})" if kept.order else ""
        lines.append(f"  {name} ({listed}) by ({', '.join(kept.key)}){ordered}")
    if lines[-1] == "State kept:":
        lines.append("  none")
    lines += ["-- body", *body_sql(shape, small=True).splitlines()]
    second = tail_sql(shape, small=True)
    if second is not None:
        lines += ["-- tail", *second.splitlines()]
    return lines


def _ways(shape: Shape) -> Iterator[tuple[str, list[Arranged]]]:
    """From each collection that can change, what is looked up in turn."""
    for block in shape.blocks:
        for start, leaf in enumerate(block.leaves):
            found = []
            for probe in probes(block, start):
                get = block.leaves[probe.into]
                if isinstance(get, Get):
                    key = tuple(get.columns[column].name for column in probe.into_columns)
                    found.append((get.id, key))
            if isinstance(leaf, Get):
                yield leaf.id, found


def _arrangements(shape: Shape, names: dict[str, str], shared: Shared) -> list[str]:
    found = set()
    for _, way in _ways(shape):
        for id_, key in way:
            others = shared.arrangements.get((id_, key))
            too = f", shared with {', '.join(others)}" if others else ""
            found.add(f"{_spelled((id_, key), names)}{too}")
    return sorted(found)


def _costs(shape: Shape, names: dict[str, str]) -> list[str]:
    """What a tick reads of what it did not get as a change."""
    lines = {}
    for id_, way in _ways(shape):
        for each in way:
            what = "the rows it joins in" if each[1] else "all of"
            line = f"for each change of {names.get(id_, id_)}: {what} {_spelled(each, names)}"
            lines[line] = None
    match shape.tail:
        case Reduction() as tail:
            ordered = any(agg.fn in EXTREMES for agg in tail.aggregates)
            more = ", and one value more than it lost" if ordered else ""
            lines[f"for each group that changes: its sums{more}"] = None
        case Top(limit=limit, offset=offset) if limit is not None:
            lines[f"for each group that changes: rows, {limit + offset} more than it lost"] = None
        case Top() | Windowed() | Whole():
            lines["for each group that changes: all of its rows"] = None
        case Temporal():
            lines["what comes or goes as time passes: only that"] = None
    return list(lines)


def _spelled(arranged: Arranged, names: dict[str, str]) -> str:
    id_, key = arranged
    by = f"by ({', '.join(key)})" if key else "(no equality leads to it)"
    return f"{names.get(id_, id_)} {by}"
