"""The queries of a tick, as text: made before anything runs, so that what has none is refused."""

from __future__ import annotations

from collections.abc import Iterator

from tidemark.compute.constants import constant_rows
from tidemark.compute.delta import body_sql
from tidemark.compute.fragments import Fragment, fragments_of, round_of
from tidemark.compute.groups import group_sql
from tidemark.compute.plan import Constant, Plan
from tidemark.compute.reduce import reduce_sql
from tidemark.compute.shape import Reduction, Shape, Temporal
from tidemark.compute.sieve import Sieve


def tail_sql(shape: Shape, *, small: bool) -> str | None:
    """The second query of a tick, if there is one."""
    if shape.tail is None or isinstance(shape.tail, Temporal):
        return None
    make = reduce_sql if isinstance(shape.tail, Reduction) else group_sql
    return make(shape, small=small)


def check_maintainable(plan: Plan) -> None:
    """Refuse, with the reason and what to do, what cannot be maintained."""
    for shape in _shapes(plan):
        body_sql(shape, small=True)
        tail_sql(shape, small=True)
        for block in shape.blocks:
            for at, leaf in enumerate(block.leaves):
                Sieve(block, at)
                if isinstance(leaf, Constant):
                    constant_rows(leaf)


def _shapes(plan: Plan) -> Iterator[Shape]:
    for piece in fragments_of(plan):
        if isinstance(piece, Fragment):
            yield piece.shape
        else:
            for fragment in round_of(piece, round_of(piece, None)).fragments:
                yield fragment.shape
