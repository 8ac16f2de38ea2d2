"""Statements that are kept to be run later: by the wire's Parse, or by PREPARE under a name."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from tidemark.compute.expr import Lit
from tidemark.control import parameters, points
from tidemark.control import statements as s
from tidemark.control.pgwire import Statement
from tidemark.errors import SqlError
from tidemark.types import TEXT, Column


class Prepared(msgspec.Struct, frozen=True):
    """A statement that parsed, with what it takes and returns. The places in `inferred` are of
    parameters whose type nobody has said: clients go by it, but what they mean is planned anew."""

    sql: str
    param_oids: tuple[int, ...]
    columns: tuple[Column, ...] | None
    statement: s.Statement
    dialect: str = "postgres"
    inferred: frozenset[int] = frozenset()
    remembered: points.Remembered = msgspec.field(default_factory=points.Remembered)

    def given(self, name: str, arguments: tuple[Lit, ...]) -> tuple[Lit, ...]:
        """What EXECUTE gives the statement of that name, as its parameters."""
        if len(arguments) != len(self.param_oids):
            raise SqlError(
                f'wrong number of parameters for prepared statement "{name}": '
                f"expected {len(self.param_oids)}, got {len(arguments)}"
            )
        said = (TEXT.oid if at in self.inferred else oid for at, oid in enumerate(self.param_oids))
        pairs = zip(arguments, said, strict=True)
        return tuple(parameters.argument(argument, oid) for argument, oid in pairs)


def named(statements: Mapping[str, Statement | None], name: str) -> Prepared | None:
    """The one of that name; None is one without a statement."""
    if name not in statements:
        raise SqlError(f'prepared statement "{name}" does not exist', sqlstate="26000")
    prepared = statements[name]
    assert prepared is None or isinstance(prepared, Prepared)
    return prepared
