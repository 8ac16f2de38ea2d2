"""SUBSCRIBE.

SUBSCRIBE [TO] name | (query)
    [ENVELOPE UPSERT | DEBEZIUM (KEY (column, ...))]
    [WITHIN TIMESTAMP ORDER BY column [ASC | DESC] [NULLS FIRST | LAST], ...]
    [WITH (SNAPSHOT = bool, PROGRESS = bool)] [AS OF [AT LEAST] time] [UP TO time]
"""

from __future__ import annotations

from tidemark.control import statements as s
from tidemark.control.clauses import as_of, column_names, options, time
from tidemark.control.cursor import Cursor
from tidemark.errors import SqlError, Unsupported

_BOOLEANS = {"true": True, "on": True, "false": False, "off": False}


def parse_subscribe(cursor: Cursor) -> s.Subscribe:
    cursor.expect("SUBSCRIBE")
    cursor.take("TO")
    name, query = None, None
    if cursor.take("("):
        query = cursor.query()
        cursor.expect(")")
    else:
        name = cursor.name()
    keyed = _keyed(cursor)
    order_by = _order_by(cursor)
    if keyed and order_by:
        raise Unsupported(
            "WITHIN TIMESTAMP ORDER BY cannot be combined with an ENVELOPE",
            hint="of a key there is one row at a time; they come in the order of the key",
        )
    # Some write the options at the end.
    known = {"snapshot": True, "progress": False} | _options(cursor)
    begin = as_of(cursor)
    up_to = time(cursor) if cursor.take("UP TO") else None
    known |= _options(cursor)
    return s.Subscribe(
        name, query, known["snapshot"], known["progress"], begin, up_to, keyed, order_by
    )


def _options(cursor: Cursor) -> dict[str, bool]:
    found: dict[str, bool] = {}
    for option, value in options(cursor) if cursor.take("WITH") else ():
        if option not in ("snapshot", "progress") or value.lower() not in _BOOLEANS:
            raise Unsupported(
                f"SUBSCRIBE option {option.upper()} = {value} is not supported",
                hint="supported: SNAPSHOT and PROGRESS, each true or false",
            )
        found[option] = _BOOLEANS[value.lower()]
    return found


def _keyed(cursor: Cursor) -> s.Keyed | None:
    if not cursor.take("ENVELOPE"):
        return None
    kind = cursor.one_of("UPSERT", "DEBEZIUM")
    cursor.expect("(")
    cursor.expect("KEY")
    key = column_names(cursor)
    if not key:
        raise SqlError(f"ENVELOPE {kind} needs its key", hint="write (KEY (column, ...))")
    cursor.expect(")")
    return s.Keyed("upsert" if kind == "UPSERT" else "debezium", key)


def _order_by(cursor: Cursor) -> tuple[s.OrderBy, ...]:
    if not cursor.take("WITHIN TIMESTAMP"):
        return ()
    cursor.expect("ORDER BY")
    found = [_by(cursor)]
    while cursor.take(","):
        found.append(_by(cursor))
    return tuple(found)


def _by(cursor: Cursor) -> s.OrderBy:
    column = cursor.word()
    descending = cursor.take("DESC") or (cursor.take("ASC") and False)
    first = descending
    if cursor.take("NULLS"):
        first = cursor.one_of("FIRST", "LAST") == "FIRST"
    return s.OrderBy(column, descending, first)
