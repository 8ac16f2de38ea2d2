"""A transaction: the time that it reads at, what it has read, and what it will write.

    X1  all reads are at one time, and see the transaction's own writes on top of it; `now()` is
        when it began
    X2  writes are kept until COMMIT, and then happen at one time, all of them or none
    X3  a transaction that has read and writes commits only if no table that it has read was written
        to since: then it is as if it had read at the time at which it writes

Nothing is locked meanwhile, so nobody waits for a transaction that is left open; who comes too late
is told so (40001), and does it again. The committer checks X3 (`Timeline.write`). It knows who
writes to tables, but not what is still to come from a source: so a transaction that has read one
does not write. A materialized view has what was committed, and no more: after a write to what is
underneath it, it cannot be read (X1).

Several statements that are sent at once are a transaction, too, an `implicit` one: without BEGIN,
and over at the end of what was sent.
"""

from __future__ import annotations

import pyarrow as pa

from tidemark.compute.plan import Plan, collections_of
from tidemark.control.catalog import Catalog
from tidemark.control.hierarchy import two_databases
from tidemark.control.lineage import Underneath, tables_of, underneath
from tidemark.control.savepoints import Savepoints
from tidemark.control.timeline import Reads
from tidemark.errors import SqlError
from tidemark.persist import DIFF
from tidemark.storage.tables import Write
from tidemark.types import arrow_schema


class Transaction:
    def __init__(self, *, began_ms: int, implicit: bool = False):
        self.began_ms = began_ms
        self.read_only = False
        self.implicit = implicit
        self.database: str | None = None
        self.as_of: int | None = None
        self.hold: int | None = None
        self.writes: list[Write] = []
        self.savepoints = Savepoints()
        self.failed = False
        self._read: dict[str, str] = {}
        self._unchecked: str | None = None
        self._used = False

    @property
    def used(self) -> bool:
        """Whether it has read or written."""
        return self._used

    @property
    def reads(self) -> Reads | None:
        """What must not have changed when it commits."""
        return Reads(self.as_of, self._read) if self.as_of is not None and self._read else None

    def use(self, database: str | None) -> None:
        """What it reads and writes is of one database: times of two mean nothing to each other."""
        if None not in (self.database, database) and self.database != database:
            raise two_databases(str(self.database), str(database))
        self.database = self.database or database

    def begin_read(self, catalog: Catalog, plan: Plan) -> None:
        """Note what `plan` reads; one that could not be read rightly is refused."""
        found = underneath(catalog, plan)
        self._check_maintained(catalog, found)
        unchecked = self._unchecked or _unchecked(found)
        if self.writes:
            _check_writes(unchecked)
        self._read |= tables_of(found)
        self._unchecked = unchecked
        self._used = True

    def begin_write(self, database: str) -> None:
        if self.read_only:
            raise SqlError("cannot write in a read-only transaction", sqlstate="25006")
        self.use(database)
        _check_writes(self._unchecked)
        self._used = True

    def own_changes(self, catalog: Catalog, plan: Plan) -> dict[str, pa.Table]:
        """What it has written to the tables that `plan` reads, with `_diff`, by their ids."""
        found = {}
        for id_ in collections_of(plan):
            item = catalog.items.get(id_)
            if item is None or item.kind != "table":
                continue
            schema = arrow_schema(item.columns).append(pa.field(DIFF, pa.int64()))
            rows = [write.rows for write in self.writes if write.shard_id == item.shard]
            if rows:
                found[id_] = pa.concat_tables([r.select(schema.names).cast(schema) for r in rows])
        return found

    def _check_maintained(self, catalog: Catalog, found: Underneath) -> None:
        written = {write.shard_id for write in self.writes}
        if not written:
            return
        for view in found.through.values():
            assert view.plan is not None
            below = tables_of(underneath(catalog, view.plan))
            if changed := sorted(name for shard, name in below.items() if shard in written):
                raise SqlError(
                    f'materialized view "{view.name}" does not have yet what this transaction has'
                    f' written to table "{changed[0]}"',
                    hint="COMMIT first, or read the view before writing",
                    sqlstate="25001",
                )


def _unchecked(found: Underneath) -> str | None:
    """What was read that may change without the committer knowing."""
    if found.sources:
        return f'source "{next(iter(found.sources.values())).name}"'
    if found.refreshed:
        return f'"{next(iter(found.refreshed.values())).name}", which is refreshed on a schedule'
    return None


def _check_writes(unchecked: str | None) -> None:
    if unchecked is not None:
        raise SqlError(
            f"a transaction that reads {unchecked} cannot write:"
            " nobody could tell whether it has changed meanwhile",
            hint="read it in a transaction of its own; a single INSERT ... SELECT outside of a"
            " transaction may read it, too",
            sqlstate="25000",
        )
