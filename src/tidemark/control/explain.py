"""EXPLAIN: a plan as a tree, the delta plan as the SQL that a tick runs, a query's timestamp."""

from __future__ import annotations

from tidemark.compute.delta import body_sql, probes
from tidemark.compute.fragments import Fragment, Piece, Recursive, fragments_of, round_of
from tidemark.compute.plan import (
    Constant,
    Filter,
    Finish,
    Get,
    Join,
    Plan,
    Project,
    Reduce,
    inputs_of,
)
from tidemark.compute.run import tail_sql
from tidemark.compute.shape import Shape
from tidemark.compute.spell import spelled
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
            by = ", ".join(f"#{o.index}{' desc' if o.descending else ''}" for o in orders)
            line = f"{pad}Finish order by ({by}) limit {limit} offset {offset}"
            return [line, *plan_lines(input_, names, depth + 1)]
        case _:
            below = [
                line for side in inputs_of(plan) for line in plan_lines(side, names, depth + 1)
            ]
            return [f"{pad}{type(plan).__name__}", *below]


def delta_lines(plan: Plan, names: dict[str, str]) -> list[str]:
    """What is kept, what is probed, and the SQL of a tick, fragment by fragment."""
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
        lines += ["", f"{title.capitalize()}:", *(f"  {x}" for x in _piece_lines(piece, known))]
    return lines


def _piece_lines(piece: Piece, names: dict[str, str]) -> list[str]:
    if isinstance(piece, Fragment):
        return _fragment_lines(piece, names)
    lines = [f"Recursion, at most {piece.limit} rounds; each of them:"]
    for fragment in round_of(piece, round_of(piece, None)).fragments:
        lines += [f"  {line}" for line in _fragment_lines(fragment, names)]
    return lines


def _jobs(shape: Shape) -> int:
    return 1 + (tail_sql(shape, small=True) is not None)


def _fragment_lines(fragment: Fragment, names: dict[str, str]) -> list[str]:
    shape = fragment.shape
    lines = ["Arrangements probed:"]
    lines += [f"  {line}" for line in _arrangements(shape, names)] or ["  none"]
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


def _arrangements(shape: Shape, names: dict[str, str]) -> list[str]:
    found = set()
    for block in shape.blocks:
        for start in range(len(block.leaves)):
            for probe in probes(block, start):
                get = block.leaves[probe.into]
                if isinstance(get, Get):
                    key = ", ".join(get.columns[column].name for column in probe.into_columns)
                    by = f"by ({key})" if key else "read whole: no equality leads to it"
                    found.add(f"{names.get(get.id, get.id)} {by}")
    return sorted(found)
