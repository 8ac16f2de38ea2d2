"""Runs the scenarios beside this file: how each operator's result changes when its inputs do.

    tables                          one a line: t (a int, b text)
    view                            its SQL
    plan                            prints its fragments: what each reads, probes and keeps, and the
                                    Spark SQL of its two queries
    load                            the tables at time 0, and the view begins: +2 t (1, 'x')
    tick upper=9                    what happens before 9: 5 -1 t (1, 'x')   5 +1 t error 'broken'
    state                           what the fragments keep in the end, besides their outputs
    restart                         the view's dataflows are made anew, with no memory

`load` and `tick` print what they did to the output of each fragment and to the view:

    f1  @5 +1  1, 'x'

When all is done, the view is compared with the batch query over the same tables at every time there
was: what is recorded anew is not thereby right. The format is that of tests/scenarios.py; `Shell`
has one method per command. Scenarios whose name begins with `prepared` run plans that are kept
(spark/prepared.py), the others the texts that they print.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from batches import check_view
from scenarios import check_scenario, scenarios_beside
from tidemark.compute import queries, run
from tidemark.compute.arrangements import Arrangements
from tidemark.compute.delta import body_sql, probes
from tidemark.compute.fixpoint import Recursion
from tidemark.compute.fragments import Fragment, Recursive, Round, fragments_of, round_of
from tidemark.compute.plan import Constant, Get, Plan
from tidemark.compute.shape import Leaf
from tidemark.compute.sql import parse_query, plan_query
from tidemark.compute.tails import tail_of
from tidemark.compute.view import Flows, View, owned
from tidemark.errors import SqlError
from tidemark.frontier import Frontier
from tidemark.persist import (
    DIFF,
    ERR,
    TIME,
    Appended,
    Config,
    MemBlob,
    MemConsensus,
    PersistClient,
)
from tidemark.persist.updates import consolidate, updates_schema
from tidemark.types import Column, arrow_schema, type_named

MOST_ROUNDS = 12
"""Rounds of a recursion that are looked at: more than any scenario needs."""

_UPDATE = re.compile(r"(?:(\d+) )?([+-]\d+) (\w+) (?:\((.*)\)|error '(.*)')")
_WORDS = {"null": None, "true": True, "false": False, "nan": float("nan"), "infinity": float("inf")}


@pytest.mark.parametrize("path", scenarios_beside(__file__), ids=lambda path: path.name)
def test_scenario(
    path: Path, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "PREPARE_AFTER", 0 if path.name.startswith("prepared") else 10**9)
    shell = Shell(spark, tmp_path)
    check_scenario(path, shell.run)
    shell.compare_with_batch()


class Shell:
    def __init__(self, spark: SparkSession, folder: Path):
        self._spark, self._folder = spark, folder
        self._client = PersistClient(MemBlob(), MemConsensus(), config=Config(heartbeat=False))
        self._tables: dict[str, tuple[Column, ...]] = {}
        self._upper = 0

    def run(self, line: str, rows: list[str]) -> list[str]:
        name, *words = line.split(" ")
        options = dict(word.split("=", 1) for word in words)
        return getattr(self, f"do_{name}")(rows=rows, **options)

    def do_tables(self, rows: list[str]) -> list[str]:
        for row in rows:
            name, _, columns = row.rstrip(")").partition(" (")
            pairs = (column.split(" ", 1) for column in columns.split(", "))
            self._tables[name] = tuple(Column(each, type_named(type_)) for each, type_ in pairs)
        return []

    def do_view(self, rows: list[str]) -> list[str]:
        self._plan = plan_query(parse_query("\n".join(rows)), self, view=True)
        self._pieces = fragments_of(self._plan)
        self._flow = self._view()
        self._hold()
        return []

    def _hold(self) -> None:
        """All that is read here stays readable."""
        read = [*self._tables, *self._outputs(all_rounds=True).values()]
        for shard in read:
            self._client.open_critical_since(shard, "test").downgrade(Frontier.MIN)

    def resolve(self, parts: tuple[str, ...]) -> Get | Plan:
        if parts[-1] not in self._tables:
            raise SqlError(f"no table {parts}", sqlstate="42P01")
        return Get(parts[-1], self._tables[parts[-1]])

    # What is printed of a plan.

    def do_plan(self, rows: list[str]) -> list[str]:
        lines: list[str] = []
        for piece in self._pieces:
            name = "view" if piece is self._pieces[-1] else piece.id
            if isinstance(piece, Fragment):
                lines += _described(name, piece)
                continue
            first = round_of(piece, None)
            lines.append(
                f"{name} is a fixpoint of at most {piece.limit} rounds; {name} round 1, 2:"
            )
            for made in (first, round_of(piece, first)):
                for fragment in made.fragments:
                    lines += _described(fragment.id, fragment)
        return [self._named(line) for line in lines]

    def _named(self, text: str) -> str:
        """Fragments by their place in the plan instead of their fingerprint."""
        for id_, name in self._names().items():
            text = text.replace(id_, name)
        return text

    def _names(self) -> dict[str, str]:
        names: dict[str, str] = {}
        for at, piece in enumerate(self._pieces[:-1], start=1):
            names[piece.id] = f"f{at}"
            if isinstance(piece, Recursive):
                for number, made in enumerate(self._rounds(piece), start=1):
                    for part, fragment in enumerate(made.fragments):
                        letter = "abcdefgh"[part] if len(made.fragments) > 1 else ""
                        names.setdefault(fragment.id, f"f{at}.{number}{letter}")
        return names

    def _rounds(self, recursive: Recursive) -> Iterator[Round]:
        made: Round | None = None
        for _ in range(min(recursive.limit, MOST_ROUNDS)):
            made = round_of(recursive, made)
            yield made

    # What happens.

    def do_load(self, rows: list[str]) -> list[str]:
        self._append(rows, 1)
        self._flow.start()
        return self._updates(0, 1)

    def do_tick(self, rows: list[str], upper: str) -> list[str]:
        lower = self._upper
        self._append(rows, int(upper))
        while self._flow.lower < Frontier(int(upper)):
            self._flow.tick(self._flow.input_upper())
        return self._updates(lower, int(upper))

    def do_restart(self, rows: list[str]) -> list[str]:
        self._flow.stop()
        self._flow = self._view()
        self._flow.start()
        return []

    def do_state(self, rows: list[str]) -> list[str]:
        lines = []
        for flow in self._flow.dataflows:
            for shard in () if isinstance(flow, Recursion) else flow.shards[1:]:
                found = self._client.open_reader(shard).snapshot(self._upper - 1)
                name = shard.removeprefix("view-").replace(self._pieces[-1].id, "view")
                lines += [f"{name}  {_row(row, row[DIFF])}" for row in _sorted(found)]
        return [self._named(line) for line in lines]

    def _view(self) -> View:
        arrangements = Arrangements(self._client, self._folder / uuid4().hex)
        flows = Flows(self._client, self._spark, arrangements)
        inputs = {name: name for name in self._tables}
        return View("view", self._plan, inputs=inputs, output="view", as_of=0, flows=flows)

    def _append(self, rows: list[str], upper: int) -> None:
        found: dict[str, list[dict[str, Any]]] = {name: [] for name in self._tables}
        for row in rows:
            match = _UPDATE.fullmatch(row)
            assert match, row
            time, diff, table, values, error = match.groups()
            names = [column.name for column in self._tables[table]]
            cells = dict(zip(names, _values(values), strict=True)) if error is None else {}
            found[table].append({**cells, TIME: int(time or 0), DIFF: int(diff), ERR: error})
        for name, columns in self._tables.items():
            updates = _updates_of(found[name], columns)
            writer = self._client.open_writer(name, schema=arrow_schema(columns))
            outcome = writer.compare_and_append(
                updates, lower=Frontier(self._upper), upper=Frontier(upper)
            )
            assert outcome == Appended(Frontier(upper))
        self._upper = upper

    def _updates(self, lower: int, upper: int) -> list[str]:
        lines = []
        for name, shard in self._outputs().items():
            reader = self._client.open_reader(shard)
            found = consolidate(reader.updates(Frontier(lower), Frontier(upper)))
            lines += [f"{name}  @{row[TIME]} {_row(row, row[DIFF])}" for row in _sorted(found)]
        return lines or ["nothing"]

    def _outputs(self, *, all_rounds: bool = False) -> dict[str, str]:
        """The shards of all fragments and of the view, by what they are called here."""
        shards: dict[str, str] = {}
        names = self._names()
        for at, piece in enumerate(self._pieces[:-1], start=1):
            if isinstance(piece, Fragment):
                shards[names[piece.id]] = owned("view", piece.id)
                continue
            for made in self._rounds(piece):
                shards |= {
                    names[fragment.id]: shard
                    for fragment in made.fragments
                    for shard in (owned("view", fragment.id),)
                    if all_rounds or self._client.state(shard).upper.time
                }
            shards |= {f"f{at}-{i}": owned("view", each) for i, each in enumerate(piece.outputs)}
        return {**shards, "view": "view"}

    def compare_with_batch(self) -> None:
        check_view(
            self._spark,
            self._client,
            self._plan,
            inputs={name: name for name in self._tables},
            output="view",
            times=range(self._upper),
        )


def _described(name: str, fragment: Fragment) -> list[str]:
    shape = fragment.shape
    lines = [f"{name} reads {', '.join(shape.inputs)}"]
    for block in shape.blocks:
        for start in range(len(block.leaves)):
            for probe in probes(block, start):
                source = _leaf(block.leaves[probe.from_leaf])
                into = _columns(block.leaves[probe.into], probe.into_columns)
                lines.append(f"  {source} changed: probes {_leaf(block.leaves[probe.into])} {into}")
    for kept, (_, key, order) in tail_of(shape).kept.items():
        listed = ", ".join(key) or "nothing"
        lines.append(
            f"  keeps {kept} by {listed}" + f" in order of {', '.join(order)}" * bool(order)
        )
    body = ["columns as they are"]
    if not all(map(run._is_plain, shape.blocks)):
        body = body_sql(shape, small=True).split("\n")
    tail = queries.tail_sql(shape, small=True)
    lines += ["  body", *(f"    {line}" for line in body)]
    if tail is not None:
        lines += ["  tail", *(f"    {line}" for line in tail.split("\n"))]
    return lines


def _leaf(leaf: Leaf) -> str:
    return "constants" if isinstance(leaf, Constant) else leaf.id


def _columns(leaf: Leaf, columns: tuple[int, ...]) -> str:
    return "by " + ", ".join(leaf.columns[at].name for at in columns) if columns else "whole"


def _values(text: str) -> list[Any]:
    """`1, 'x', null` as values."""
    tuple_ = ast.parse(f"({text},)", mode="eval").body
    assert isinstance(tuple_, ast.Tuple)
    return [
        _WORDS[node.id] if isinstance(node, ast.Name) else ast.literal_eval(node)
        for node in tuple_.elts
    ]


def _updates_of(rows: list[dict[str, Any]], columns: tuple[Column, ...]) -> pa.Table:
    schema = updates_schema(arrow_schema(columns))
    arrays = []
    for field in schema:
        values = [row.get(field.name) for row in rows]
        if pa.types.is_decimal(field.type):
            values = [None if value is None else Decimal(str(value)) for value in values]
        if pa.types.is_timestamp(field.type):
            values = pa.array(values, pa.string())
            arrays.append(values.cast(field.type))
            continue
        arrays.append(pa.array(values, field.type))
    return pa.table(arrays, schema=schema)


def _sorted(table: pa.Table) -> list[dict[str, Any]]:
    return sorted(
        table.to_pylist(),
        key=lambda row: (row[TIME], _shown(row), row[DIFF]),
    )


def _row(row: dict[str, Any], diff: int) -> str:
    return f"{diff:+}  {_shown(row)}"


def _shown(row: dict[str, Any]) -> str:
    if row[ERR] is not None:
        return f"error {row[ERR]!r}"
    cells = [value for name, value in row.items() if name not in (TIME, DIFF, ERR)]
    return ", ".join(map(_cell, cells))


def _cell(value: Any) -> str:
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, Decimal):
        text = f"{value:f}"
        return text.rstrip("0").rstrip(".") if "." in text else text
    if isinstance(value, float):
        return f"{value:.9g}"
    return repr(value) if isinstance(value, str) else str(value)
