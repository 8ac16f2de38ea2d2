"""VALUES: rows of expressions as a Constant, or as a projection of one."""

from __future__ import annotations

from tidemark.compute.casts import common_type
from tidemark.compute.expr import Col, Expr, Lit
from tidemark.compute.functions import call, cast
from tidemark.compute.literals import UNKNOWN, number_literal
from tidemark.compute.plan import Constant, Plan, Project
from tidemark.errors import SqlError
from tidemark.types import Column


def values_plan(rows: list[list[Expr]]) -> Plan:
    """Rows of expressions as a Constant; columns named column1, column2, ..."""
    width = len(rows[0])
    if any(len(row) != width for row in rows):
        raise SqlError("VALUES lists must all be the same length")
    columns: list[Column] = []
    for at in range(width):
        type_ = common_type({row[at].type for row in rows})
        if type_ is None:
            names = sorted({row[at].type.name for row in rows if row[at].type != UNKNOWN})
            raise SqlError(
                f"VALUES types {names[0]} and {names[1]} cannot be matched", sqlstate="42804"
            )
        columns.append(Column(f"column{at + 1}", type_))
    typed = [
        [cast(expr, column.type) for expr, column in zip(row, columns, strict=True)] for row in rows
    ]
    return rows_plan(typed, tuple(columns))


def rows_plan(rows: list[list[Expr]], columns: tuple[Column, ...]) -> Plan:
    """A Constant; an expression that is no literal is computed over it, chosen by row number."""
    computed = [at for at in range(len(columns)) if any(not isinstance(r[at], Lit) for r in rows)]
    constants = tuple(
        tuple(expr if isinstance(expr, Lit) else Lit(None, expr.type) for expr in row)
        for row in rows
    )
    if not computed:
        return Constant(constants, columns)
    names = tuple(column.name for column in columns)
    numbered = Constant(
        tuple((number_literal(str(n)), *row) for n, row in enumerate(constants)),
        (Column("row", number_literal("0").type), *columns),
    )
    number = Col(0, number_literal("0").type)
    outputs: list[Expr] = [Col(at + 1, column.type) for at, column in enumerate(columns)]
    for at in computed:
        branches: list[Expr] = []
        for n, row in enumerate(rows[:-1]):
            branches += [call("=", (number, number_literal(str(n)))), row[at]]
        otherwise = rows[-1][at]
        outputs[at] = call("case", (*branches, otherwise)) if branches else otherwise
    return Project(numbered, tuple(outputs), names)
