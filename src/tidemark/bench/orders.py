"""The workload of `tidemark bench views`: orders of customers in regions, and what happens to them.

Orders are numpy arrays, so that every retraction repeats what was inserted, and the maximum of a
group is known without asking anybody.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from tidemark.compute.plan import Get, Plan
from tidemark.compute.sql import parse_query, plan_query
from tidemark.frontier import Frontier
from tidemark.persist import DIFF, TIME, PersistClient, as_updates
from tidemark.types import BIGINT, TEXT, Column, arrow_schema, numeric

QUERY = """
SELECT region, count(*) AS orders, sum(amount) AS total, max(amount) AS largest
FROM orders JOIN customers ON customer = customers.id GROUP BY region
"""
ORDERS = (Column("id", BIGINT), Column("customer", BIGINT), Column("amount", numeric(12, 2)))
CUSTOMERS = (Column("id", BIGINT), Column("region", TEXT))
SHARDS = {"orders": "orders", "customers": "customers"}
REGIONS = 20
TIMES_PER_TICK = 5
UPSERTS = 1_000
SEED = 42


class Tables:
    """What the query's names mean."""

    def resolve(self, parts: tuple[str, ...]) -> Get | Plan:
        columns = {"orders": ORDERS, "customers": CUSTOMERS}[parts[-1]]
        return Get(parts[-1], columns, ((0,),))


def plan() -> Plan:
    return plan_query(parse_query(QUERY), Tables(), view=True)


class Workload:
    def __init__(self, client: PersistClient, orders: int):
        self._rng = np.random.default_rng(SEED)
        self._orders = client.open_writer("orders", schema=arrow_schema(ORDERS), key=("id",))
        self._customers = client.open_writer("customers", schema=arrow_schema(CUSTOMERS))
        self._count = max(orders // 10, 1)
        self._customer = self._rng.integers(0, self._count, orders)
        self._amount = self._rng.integers(100, 10_000_000, orders)
        self._live = np.ones(orders, dtype=bool)
        self._region = self._rng.integers(0, REGIONS, self._count)
        self.now = 10
        ids = np.arange(orders)
        self._append(self._orders, self._rows(ids), np.ones(orders), np.full(orders, 1), 0)
        everyone = np.ones(self._count)
        self._append(self._customers, self.customers(), everyone, everyone, 0)

    def customers(self) -> pa.Table:
        names = pa.array([f"region {i}" for i in range(REGIONS)])
        regions = names.take(pa.array(self._region))
        return pa.table([pa.array(np.arange(self._count)), regions], names=["id", "region"])

    def orders(self) -> pa.Table:
        """All that are there."""
        return self._rows(np.flatnonzero(self._live))

    def tick(self, upserts: int = UPSERTS, *, maxima: bool = False) -> pa.Table:
        """One interval of upserts at several times, appended to the shards.

        With `maxima`, the largest order of every region goes, too. Returns the last of each order:
        its columns, and whether it is `deleted`.
        """
        tables, diffs, times, touched = [], [], [], []
        for step in range(TIMES_PER_TICK):
            doomed = self._maxima() if maxima and step == 0 else np.zeros(0, dtype=np.int64)
            for ids, rows, diff in self._upserts(upserts // TIMES_PER_TICK, doomed):
                tables.append(rows)
                touched.append(ids)
                diffs.append(np.full(rows.num_rows, diff))
                times.append(np.full(rows.num_rows, self.now + step))
        lower, self.now = self.now, self.now + TIMES_PER_TICK
        rows = pa.concat_tables(tables)
        self._append(self._orders, rows, np.concatenate(diffs), np.concatenate(times), lower)
        self._customers.advance_upper(Frontier(self.now))
        ids = np.unique(np.concatenate(touched))
        return self._rows(ids).append_column("deleted", pa.array(~self._live[ids]))

    def rest(self) -> None:
        """An interval in which nothing happens."""
        self.now += TIMES_PER_TICK
        for writer in (self._orders, self._customers):
            writer.advance_upper(Frontier(self.now))

    def _maxima(self) -> np.ndarray:
        """The largest live order of each region."""
        live = np.flatnonzero(self._live)
        regions = self._region[self._customer[live]]
        order = np.lexsort((self._amount[live], regions))
        last = np.append(np.flatnonzero(np.diff(regions[order])), len(order) - 1)
        return live[order[last]]

    def _upserts(self, count: int, doomed: np.ndarray) -> list[tuple[np.ndarray, pa.Table, int]]:
        kind = self._rng.random(count)
        hit = np.unique(self._rng.integers(0, len(self._live), int((kind >= 0.1).sum())))
        hit = np.setdiff1d(hit[self._live[hit]], doomed)
        gone = np.append(hit[: len(hit) // 9], doomed)
        kept = hit[len(hit) // 9 :]
        old = np.append(kept, gone)
        before = self._rows(old)
        self._live[gone] = False
        self._amount[kept] = self._rng.integers(100, 10_000_000, len(kept))
        fresh = int((kind < 0.1).sum())
        ids = np.arange(len(self._live), len(self._live) + fresh)
        self._customer = np.append(self._customer, self._rng.integers(0, self._count, fresh))
        self._amount = np.append(self._amount, self._rng.integers(100, 10_000_000, fresh))
        self._live = np.append(self._live, np.ones(fresh, dtype=bool))
        new = np.append(kept, ids)
        return [(old, before, -1), (new, self._rows(new), 1)]

    def _rows(self, ids: np.ndarray) -> pa.Table:
        cents = pa.array(self._amount[ids]).cast(pa.decimal128(19, 0))
        # An integer number of cents is the decimal with two digits, bit for bit.
        amount = pa.Array.from_buffers(pa.decimal128(12, 2), len(cents), cents.buffers())
        return pa.table(
            [pa.array(ids), pa.array(self._customer[ids]), amount],
            names=["id", "customer", "amount"],
        )

    def _append(self, writer, rows: pa.Table, diffs, times, lower: int) -> None:
        updates = rows.append_column(TIME, pa.array(times.astype(np.int64)))
        updates = updates.append_column(DIFF, pa.array(diffs.astype(np.int64)))
        outcome = writer.compare_and_append(
            as_updates(updates, schema=writer.schema),
            lower=Frontier(lower),
            upper=Frontier(self.now),
        )
        assert outcome.__class__.__name__ == "Appended", outcome
