"""A maintained view against the batch query over the same shards, at every time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

import msgspec
import pyarrow as pa
from pyspark.sql import SparkSession

from tidemark.compute.expr import Col, Lit
from tidemark.compute.peek import at_time, run_peek
from tidemark.compute.plan import Get, Plan, Project, Union, inputs_of, with_inputs
from tidemark.compute.protocol import Peek
from tidemark.errors import DataError
from tidemark.frontier import Frontier
from tidemark.ipc import encode_table
from tidemark.persist import DIFF, ERR, TIME, PersistClient
from tidemark.persist.updates import row_names
from tidemark.types import BIGINT

AT_ONCE = 12
"""Times that one Spark query answers for."""

Contents = Counter[tuple[Any, ...]]


def check_view(
    spark: SparkSession,
    client: PersistClient,
    plan: Plan,
    *,
    inputs: Mapping[str, str],
    output: str,
    times: range,
) -> None:
    """The shard `output` is, at each of `times`, what the plan says of `inputs` (id to shard);
    where the query fails it has an error row, whatever else."""
    batch = Batch(spark, client, plan, inputs)
    asked = batch.at(batch.moments(times))
    reader = client.open_reader(output)
    expected: Contents | None = None
    for time in times:
        expected = asked.get(time, expected)
        found = reader.snapshot(time)
        failed = any(message is not None for message in found[ERR].to_pylist())
        counts: Contents = Counter()
        columns = [found[name].to_pylist() for name in row_names(found.schema)]
        for *row, diff in zip(*columns, found[DIFF].to_pylist(), strict=True):
            counts[tuple(map(_rounded, row))] += diff
        assert (None if failed else counts) == expected, (
            f"{output} is not what batch says at {time}"
        )


class Batch:
    def __init__(
        self,
        spark: SparkSession,
        client: PersistClient,
        plan: Plan,
        inputs: Mapping[str, str],
    ):
        self._spark, self._client, self._plan, self._inputs = spark, client, plan, inputs

    def moments(self, times: range) -> list[int]:
        """The first of `times`, and those at which the result may become another."""
        if at_time(self._plan, 0) != self._plan:
            return list(times)
        found = {times[0]}
        for shard in self._inputs.values():
            updates = self._client.open_reader(shard).updates(Frontier.MIN, Frontier(times.stop))
            found.update(time for time in updates[TIME].to_pylist() if time in times)
        return sorted(found)

    def at(self, times: list[int]) -> dict[int, Contents | None]:
        """What the query says at each time, many in one go; None where it fails."""
        if len(times) > AT_ONCE:
            return self.at(times[:AT_ONCE]) | self.at(times[AT_ONCE:])
        given: dict[str, bytes] = {}
        try:
            branches = tuple(self._branch(time, given) for time in times)
            peek = Peek("batch", Union(branches), times[-1], {}, given)
            table = run_peek(self._spark, self._client, peek)
        except DataError:
            if len(times) == 1:
                return {times[0]: None}
            half = len(times) // 2
            return self.at(times[:half]) | self.at(times[half:])
        found: dict[int, Contents] = {time: Counter() for time in times}
        for *row, time in zip(*(column.to_pylist() for column in table.columns), strict=True):
            found[time][tuple(map(_rounded, row))] += 1
        return {**found}

    def _branch(self, time: int, given: dict[str, bytes]) -> Plan:
        """The query at `time`, with the time behind its columns."""

        def moved(node: Plan) -> Plan:
            if isinstance(node, Get):
                name = f"{node.id}@{time}"
                if name not in given:
                    given[name] = encode_table(self._rows(node.id, time))
                return msgspec.structs.replace(node, id=name)
            return with_inputs(node, tuple(moved(input_) for input_ in inputs_of(node)))

        columns = tuple(Col(i, column.type) for i, column in enumerate(self._plan.columns))
        names = tuple(column.name for column in self._plan.columns)
        here = moved(at_time(self._plan, time))
        return Project(here, (*columns, Lit(str(time), BIGINT)), (*names, "_time"))

    def _rows(self, id_: str, time: int) -> pa.Table:
        found = self._client.open_reader(self._inputs[id_]).snapshot(time)
        errors = [message for message in found[ERR].to_pylist() if message is not None]
        if errors:
            raise DataError(errors[0])
        copies = found[DIFF].to_pylist()
        repeated = [at for at, count in enumerate(copies) for _ in range(count)]
        return found.take(pa.array(repeated, pa.int64())).select(row_names(found.schema))


def _rounded(value: Any) -> Any:
    """A sum of floating-point numbers depends on their order."""
    return float(f"{value:.9g}") if isinstance(value, float) else value
