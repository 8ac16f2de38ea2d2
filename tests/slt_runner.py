"""SQL logic tests: the usual `.slt` format, run against any server that speaks PostgreSQL's wire.

    # a comment
    statement ok
    CREATE TABLE t (a integer)

    statement error division by zero
    SELECT 1 / 0

    query IT rowsort
    SELECT a, b FROM t
    ----
    1	one
    2	NULL

A record ends with an empty line. A row is a line and a tab stands between its values; a value is
what the wire carries as text, but `NULL` for null, `(empty)` for the empty text, and `\\n`, `\\t`
and `\\\\` for what would break the line. The letters are the columns' types: I an integer, R a
number with decimals, T anything else. R is compared as a number (see `same_number`), the others
letter by letter.

`nosort` (the default) keeps the order, `rowsort` sorts the rows, `valuesort` the values, one on
a line each. Queries with the same label behind that have the same result. `skipif NAME` and
`onlyif NAME` before a record say where it runs: NAME is `postgresql`, `tidemark` or `view`, and
`view` is Tidemark's maintained views only, `tidemark` both. `halt` ends a file, and after
`hash-threshold N` a result of more than N values is kept as its MD5.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal, InvalidOperation

import psycopg
from psycopg.pq import ExecStatus

SORTS = ("nosort", "rowsort", "valuesort")
ENGINES = ("postgresql", "tidemark", "view")
EMPTY, NULL = "(empty)", "NULL"
BARE_SCALE = 16
"""Decimals of a numeric without limits, in Tidemark."""
DIGITS = 15
"""Significant ones that PostgreSQL gives a quotient or a root, at least."""

_LETTERS = {20: "I", 21: "I", 23: "I", 700: "R", 701: "R", 1700: "R"}
_FLOATS = (700, 701)


class FormatError(Exception):
    """The file is not what this module describes."""


class Failed(Exception):
    """The server refused the statement."""


@dataclass(frozen=True, slots=True)
class Record:
    """One block of a file; `head` is its text up to the expected result, comments included."""

    line: int
    head: tuple[str, ...]
    kind: str  # statement, query, halt, hash-threshold, or nothing but comments
    sql: str = ""
    error: str | None = None
    types: str = ""
    sort: str = "nosort"
    label: str | None = None
    expected: tuple[str, ...] | None = None
    skip: frozenset[str] = frozenset()
    only: frozenset[str] = frozenset()
    threshold: int = 0

    def runs_on(self, engine: str) -> bool:
        names = {"tidemark", "view"} if engine == "view" else {engine}
        return not self.skip & names and (not self.only or bool(self.only & names))


@dataclass(frozen=True, slots=True)
class Result:
    """Rows as texts, and the type of each column as the wire tells it."""

    rows: list[tuple[str | None, ...]]
    oids: tuple[int, ...]
    modifiers: tuple[int, ...] = ()

    @property
    def letters(self) -> str:
        return "".join(_LETTERS.get(oid, "T") for oid in self.oids)


def parse(text: str) -> list[Record]:
    """The records of a file, in order; what follows `halt` is not read."""
    records: list[Record] = []
    threshold = 0
    for line, block in _blocks(text):
        record = _record(line, block, threshold)
        threshold = record.threshold
        records.append(record)
        if record.kind == "halt":
            break
    return records


def unparse(records: Sequence[Record]) -> str:
    """The text of a file, with the expected results that the records have now."""
    blocks = []
    for record in records:
        lines = list(record.head)
        if record.expected is not None:
            lines += ["----", *record.expected]
        blocks.append("\n".join(lines) + "\n")
    return "\n".join(blocks)


def _blocks(text: str) -> list[tuple[int, list[str]]]:
    blocks: list[tuple[int, list[str]]] = []
    current: list[str] = []
    lines = text.split("\n")
    for number, line in enumerate([*lines, ""], 1):
        if line:
            current.append(line)
        elif current:
            blocks.append((number - len(current), current))
            current = []
    return blocks


def _record(line: int, block: list[str], threshold: int) -> Record:
    skip: set[str] = set()
    only: set[str] = set()
    for at, text in enumerate(block):
        words = text.split()
        if text.startswith("#"):
            continue
        if words[0] in ("skipif", "onlyif"):
            if len(words) < 2 or words[1] not in ENGINES:
                raise FormatError(f"line {line + at}: {text!r} names none of {ENGINES}")
            (skip if words[0] == "skipif" else only).add(words[1])
            continue
        made = Record(line, tuple(block), words[0], threshold=threshold)
        made = replace(made, skip=frozenset(skip), only=frozenset(only))
        body = block[at + 1 :]
        match words[0]:
            case "statement":
                return _statement(made, text, body)
            case "query":
                return _query(made, words[1:], body, head=block[: at + 1])
            case "halt":
                return made
            case "hash-threshold" if len(words) == 2 and words[1].isdigit():
                return replace(made, threshold=int(words[1]))
        raise FormatError(f"line {line + at}: {text!r} begins no record")
    return Record(line, tuple(block), "comment", threshold=threshold)


def _statement(made: Record, text: str, body: list[str]) -> Record:
    found = re.fullmatch(r"statement\s+(ok|error)(?:\s+(.*\S))?\s*", text)
    if found is None or (found[1] == "ok" and found[2]) or not body:
        raise FormatError(f"line {made.line}: {text!r}: statement ok, or statement error REGEX")
    error = None if found[1] == "ok" else found[2] or ""
    return replace(made, sql="\n".join(body), error=error)


def _query(made: Record, words: list[str], body: list[str], head: list[str]) -> Record:
    types = words[0] if words else ""
    sort = words[1] if len(words) > 1 else "nosort"
    if not re.fullmatch("[ITR]+", types) or sort not in SORTS or len(words) > 3 or not body:
        raise FormatError(f"line {made.line}: query TYPES [{'|'.join(SORTS)}] [label]")
    at = body.index("----") if "----" in body else len(body)
    if at == 0:
        raise FormatError(f"line {made.line}: a query without SQL")
    return replace(
        made,
        head=(*head, *body[:at]),
        sql="\n".join(body[:at]),
        types=types,
        sort=sort,
        label=words[2] if len(words) > 2 else None,
        expected=tuple(body[at + 1 :]),
    )


# Results as lines ---------------------------------------------------------------------------------


def lines_of(record: Record, rows: Sequence[tuple[str | None, ...]]) -> tuple[str, ...]:
    """What a result is written as under a query."""
    shown = [[_shown(value) for value in row] for row in rows]
    if record.sort == "valuesort":
        lines = sorted(value for row in shown for value in row)
    else:
        lines = ["\t".join(row) for row in shown]
        if record.sort == "rowsort":
            lines.sort()
    values = len(rows) * len(record.types)
    if 0 < record.threshold < values:
        digest = hashlib.md5("\n".join(lines).encode()).hexdigest()
        return (f"{values} values hashing to {digest}",)
    return tuple(lines)


def unsorted(record: Record) -> Record:
    """The record with a result that has no order, as a relation has none."""
    if record.sort != "nosort" or record.expected is None:
        return record
    return replace(record, sort="rowsort", expected=tuple(sorted(record.expected)))


def _shown(value: str | None) -> str:
    if value is None:
        return NULL
    escaped = value.replace("\\", "\\\\").replace("\n", "\\n").replace("\t", "\\t")
    return escaped.replace("\r", "\\r") or EMPTY


def difference(record: Record, result: Result) -> str | None:
    """How a result is not what the record expects, or None."""
    if result.letters != record.types:
        return f"columns of types {result.letters}, expected {record.types}"
    got, wanted = lines_of(record, result.rows), record.expected or ()
    if got == wanted:
        return None
    if "R" in record.types and _same_numbers(record, result, wanted):
        return None
    return "expected:\n  " + "\n  ".join(wanted) + "\ngot:\n  " + "\n  ".join(got)


def _same_numbers(record: Record, result: Result, wanted: tuple[str, ...]) -> bool:
    """The rows compared one by one, numbers as numbers.

    Sorted rows are paired by their other columns first, as 1.50 and 1.5 sort apart.
    """
    if record.sort == "valuesort" or len(wanted) != len(result.rows):
        return False
    theirs = [tuple(line.split("\t")) for line in wanted]
    ours = [tuple(map(_shown, row)) for row in result.rows]
    if record.sort == "rowsort":
        exact = [at for at, letter in enumerate(record.types) if letter != "R"]
        numbers = [at for at, letter in enumerate(record.types) if letter == "R"]

        def key(row: tuple[str, ...]) -> tuple[tuple[str, ...], tuple[float, ...]]:
            return tuple(row[at] for at in exact), tuple(_float(row[at]) for at in numbers)

        theirs.sort(key=key)
        ours.sort(key=key)
    for mine, other in zip(ours, theirs, strict=True):
        if len(mine) != len(other):
            return False
        for letter, oid, a, b in zip(record.types, result.oids, mine, other, strict=True):
            if a != b and not (letter == "R" and same_number(a, b, inexact=oid in _FLOATS)):
                return False
    return True


def _float(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        return float("inf")
    # What a bare numeric cannot tell apart must not decide the order.
    return 1e308 if value != value else float(f"{value:.12e}")


def same_number(got: str, wanted: str, *, inexact: bool) -> bool:
    """Whether two texts are the same number.

    A double may differ in its last digits, as libraries of functions do. A numeric must be equal,
    but how many decimals a quotient has is a choice: ours has 16 at most, PostgreSQL's at least 16
    digits. So where PostgreSQL shows that many, the last digit of the shorter may be off by one.
    """
    try:
        a, b = Decimal(got), Decimal(wanted)
    except InvalidOperation:
        return False
    if not (a.is_finite() and b.is_finite()):
        return False
    if a == b:
        return not inexact or a != 0  # -0 is not 0
    if inexact:
        return abs(a - b) <= abs(b) * Decimal("1e-14")
    decimals, digits = len(wanted.partition(".")[2]), len(b.as_tuple().digits)
    unit = Decimal(1).scaleb(-min(decimals, BARE_SCALE))
    return max(decimals, digits) >= DIGITS and abs(a - b) <= unit


# Servers ------------------------------------------------------------------------------------------


class Engine:
    """A connection to one of the servers, in UTC; `name` is what skipif and onlyif call it."""

    def __init__(self, name: str, connection: psycopg.Connection):
        self.name = name
        self.connection = connection
        self._prepared = 0

    def execute(self, sql: str) -> Result:
        """By the simple protocol, so that every value comes as text."""
        found = self.connection.pgconn.exec_(sql.encode())
        if found.status not in (ExecStatus.TUPLES_OK, ExecStatus.COMMAND_OK):
            raise Failed(_message(found))
        rows = [
            tuple(_decoded(found.get_value(row, column)) for column in range(found.nfields))
            for row in range(found.ntuples)
        ]
        return replace(_described(found), rows=rows)

    def describe(self, sql: str) -> Result:
        """The columns of a query, which is not run."""
        self._prepared += 1
        name = f"slt{self._prepared}".encode()
        wire = self.connection.pgconn
        made = wire.prepare(name, sql.encode())
        if made.status != ExecStatus.COMMAND_OK:
            raise Failed(_message(made))
        found = wire.describe_prepared(name)
        wire.exec_(b"DEALLOCATE " + name)
        return _described(found)


def _described(found: psycopg.pq.abc.PGresult) -> Result:
    columns = range(found.nfields)
    return Result(
        [],
        tuple(found.ftype(at) for at in columns),
        tuple(found.fmod(at) for at in columns),
    )


def _message(found: psycopg.pq.abc.PGresult) -> str:
    message = found.error_field(psycopg.pq.DiagnosticField.MESSAGE_PRIMARY)
    return message.decode() if message else found.error_message.decode()


def _decoded(value: bytes | None) -> str | None:
    return None if value is None else value.decode()


@dataclass(slots=True)
class Run:
    """A file on one engine; `problems` is what was not as expected."""

    engine: Engine
    problems: list[str] = field(default_factory=list)
    queries: int = 0
    labels: dict[str, tuple[str, ...]] = field(default_factory=dict)

    def step(self, record: Record) -> Result | None:
        """Run one record; the rows of a query that was answered."""
        if not record.runs_on(self.engine.name):
            return None
        if record.kind == "statement":
            self._statement(record)
        elif record.kind == "query":
            return self._query(record)
        return None

    def _statement(self, record: Record) -> None:
        try:
            self.engine.execute(record.sql)
        except Failed as failed:
            if record.error is None:
                self.problem(record, f"failed: {failed}")
            elif not re.search(record.error, str(failed)):
                self.problem(record, f"failed with {failed}, expected {record.error}")
            return
        if record.error is not None:
            self.problem(record, f"did not fail, expected: {record.error}")

    def _query(self, record: Record) -> Result | None:
        self.queries += 1
        try:
            result = self.engine.execute(record.sql)
        except Failed as failed:
            self.problem(record, f"failed: {failed}")
            return None
        if (wrong := difference(record, result)) is not None:
            self.problem(record, wrong)
        if record.label is not None:
            lines = lines_of(record, result.rows)
            if self.labels.setdefault(record.label, lines) != lines:
                self.problem(record, f"not the result that {record.label} had before")
        return result

    def problem(self, record: Record, what: str) -> None:
        self.problems.append(f"line {record.line}, {self.engine.name}: {record.sql}\n{what}")


def recorded(records: Sequence[Record], postgres: Engine, tidemark: Engine | None) -> list[Record]:
    """The records with what PostgreSQL gives; with Tidemark's own only where it alone runs."""
    made: list[Record] = []
    for record in records:
        on = postgres if record.runs_on("postgresql") else tidemark
        if record.kind == "statement":
            for engine in (postgres, tidemark):
                if engine is not None and record.runs_on(engine.name):
                    _attempt(engine, record)
        elif record.kind == "query" and on is not None and record.runs_on(on.name):
            result = on.execute(record.sql)
            typed = replace(record, types=result.letters, head=_retyped(record, result.letters))
            record = replace(typed, expected=lines_of(typed, result.rows))
        made.append(record)
    return made


def _retyped(record: Record, letters: str) -> tuple[str, ...]:
    return tuple(
        re.sub(r"^query\s+[ITR]+", f"query {letters}", line) if line.startswith("query") else line
        for line in record.head
    )


def _attempt(engine: Engine, record: Record) -> None:
    try:
        engine.execute(record.sql)
    except Failed as failed:
        if record.error is None:
            raise Failed(f"line {record.line}, {engine.name}: {failed}") from None
