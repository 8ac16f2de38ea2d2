"""Arrangements: a shard laid out by key, so that "the rows for these keys" costs what they cost.

The durable form is the shard itself. The hot form is a disposable local copy of its rows, sorted
by the hash of the key columns:

    base    the rows as of some time: a mapped file that the processes of a host share (cache.py)
    tail    runs of later updates, this process's own: small ones in memory, large ones mapped

    lookup(keys, as_of)                 the rows of these keys
    heads(keys, counts, as_of, last=)   with `order`: the first (or last) live rows of each group

A look-up is a binary search of each key's hash in every run (hot.py), then one take, and then the
keys are compared: hashes collide, keys do not. When the tail has grown to a fair share of the base
they are merged into a new base, in bounded memory, as everything here (layout.py); a large one aside,
while look-ups go on with what is there:

    base  tail 1 2 3 | 4 5       1, 2 and 3 are being merged, 4 and 5 have come since
    new base  tail 4 5

A reader at `as_of` sees exactly the updates at times <= as_of, as long as it holds the arrangement
there (`hold`): the base never absorbs what some holder must not see yet. A base that is missing,
evicted or damaged is made again from the shard.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple, TypeVar
from uuid import uuid4
from weakref import WeakKeyDictionary

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import structlog

from tidemark.errors import AsOfBeforeSince, InvalidUsage, Unavailable
from tidemark.frontier import Frontier
from tidemark.persist.cache import Base, Cache, identity_of
from tidemark.persist.client import PersistClient
from tidemark.persist.heads import find_heads
from tidemark.persist.holds import check_as_of
from tidemark.persist.hot import Damaged, Run
from tidemark.persist.keyhash import HASH
from tidemark.persist.keys import Keys
from tidemark.persist.layout import (
    Layout,
    Sizes,
    columns_of,
    merge,
    shaped,
    slices,
    sort_stream,
    write,
)
from tidemark.persist.read import overlapping
from tidemark.persist.updates import ERR, META_FIELDS, TIME, consolidate, split_errors

log = structlog.get_logger("persist")

MAX_TAIL_RUNS = 8
MIN_TAIL_ROWS = 50_000
TAIL_SHARE = 0.2
ASIDE_ROWS = 300_000
"""A base of more rows is merged by a thread of its own: nobody should wait for it."""

_ATTEMPTS = 5

T = TypeVar("T")


class Merging(NamedTuple):
    """A new base in the making: of what is in these runs at times <= `limit`."""

    base: Run
    tail: tuple[Run, ...]
    limit: int


class Arrangement:
    """The rows of a shard by `key`, ordered within it by `order` if given."""

    def __init__(
        self,
        client: PersistClient,
        shard_id: str,
        key: tuple[str, ...],
        *,
        cache: Cache,
        order: str | tuple[str, ...] | None = None,
        schema: pa.Schema | None = None,
        errors: bool = False,
    ):
        """`schema` (of updates) is only needed for a shard that nobody has written to yet. With
        `errors`, error rows are found like others, and rows have the column `_err`."""
        order = (order,) if isinstance(order, str) else tuple(order or ())
        self._client = client
        self._shard_id = shard_id
        self._reader = client.open_reader(shard_id)
        self._schema = schema
        self._layout = Layout(tuple(key), order, errors=errors)
        self._cache = cache
        kind = (*order, ERR) if errors else order
        self._identity = identity_of(region_of(client), shard_id, tuple(key), kind)
        config = client.config
        self._sizes = Sizes(config.hot_batch_bytes, config.hot_sort_bytes)
        self._lock = threading.RLock()
        self._holds: dict[str, int] = {}
        self._shared: Base | None = None
        self._base: Run | None = None
        self._tail: list[Run] = []
        self._merging: Merging | None = None
        self._put_off = 0
        self._as_of = -1
        self._upper = Frontier.MIN

    @property
    def rows(self) -> int:
        return (self._base.rows if self._base else 0) + sum(run.rows for run in self._tail)

    @property
    def is_loaded(self) -> bool:
        return self._base is not None

    @property
    def upper(self) -> Frontier:
        """How far it has followed the shard."""
        return self._upper

    @property
    def nbytes(self) -> int:
        """All that it takes, in memory and in mapped files."""
        base = self._base
        return (base.nbytes if base else 0) + sum(run.nbytes for run in self._tail)

    @property
    def memory(self) -> int:
        """What of it is this process's own: a mapped file is the kernel's to keep or drop."""
        return sum(run.nbytes for run in list(self._tail) if not run.is_mapped)

    @property
    def base_as_of(self) -> int:
        """The time of the base: while history reaches back to it, it need not be made again."""
        return self._as_of

    def hold(self, holder: str, as_of: int) -> None:
        """`holder` will read at `as_of` or later, and the shard may forget what was before."""
        with self._lock:
            before = self._holds.get(holder)
            as_of = as_of if before is None else max(as_of, before)
            if self._base is None or as_of < self._as_of:
                self._load(as_of)
            self._holds[holder] = as_of
            try:
                self._intact(lambda: self._catch_up(as_of))
            except Exception:
                self._holds.pop(holder)
                if before is not None:
                    self._holds[holder] = before
                raise

    def release(self, holder: str) -> bool:
        """Drop the holder; True if it was the last. The base stays for whoever comes next."""
        with self._lock:
            self._holds.pop(holder, None)
            if self._holds:
                return False
            self._forget()
            return True

    def advance(self, as_of: int) -> None:
        """Follow the shard, which is complete up to `as_of`, before anyone asks."""
        with self._lock:
            self._intact(lambda: self._catch_up(as_of))

    def spill(self) -> None:
        """Write what is in memory to a mapped file: slower to find in, but nobody's memory."""
        with self._lock:
            # What is being merged into a new base goes with it.
            first = len(self._merging.tail) if self._merging is not None else 0
            runs = self._tail[first:]
            if any(not run.is_mapped for run in runs):
                self._tail[first:] = [self._in_file(runs)]

    def lookup(self, keys: pa.Table, as_of: int) -> pa.Table:
        """The rows up to `as_of` whose key is among `keys`, consolidated, with their `_diff`.

        The first columns of `keys` are the key, whatever their names.
        """
        found = self.lookup_within(keys, as_of, None)
        assert found is not None
        return found

    def lookup_within(self, keys: pa.Table, as_of: int, most_bytes: int | None) -> pa.Table | None:
        """The same, or None if what is found would be larger than that, about."""
        with self._lock:
            return self._intact(lambda: self._lookup(keys, as_of, most_bytes))

    def everything(self, as_of: int) -> pa.Table:
        """All rows up to `as_of`, as look-ups give them: for who would ask for more keys than
        there are."""
        found = self._reader.snapshot(as_of)
        found = found if self._layout.errors else split_errors(found)[0]
        return shaped(found, pa.schema([*self._row_schema(), META_FIELDS[1]]))

    def heads(self, keys: pa.Table, counts: np.ndarray, as_of: int, *, last: bool) -> pa.Table:
        """For each key at least the `counts` first (or last) live rows of its group.

        A group that has fewer comes back whole. What comes of a group is everything up to some
        place in it; `keys` are distinct.
        """
        if not self._layout.order:
            raise InvalidUsage("this arrangement is not ordered within its key")

        def find() -> pa.Table:
            self._catch_up(as_of)
            runs, schema = self._runs(), self._row_schema()
            asked = Keys(keys, self._layout.key, schema)
            return find_heads(runs, asked, counts, self._layout, schema, as_of=as_of, last=last)

        with self._lock:
            return self._intact(find)

    # Reading.

    def _lookup(self, keys: pa.Table, as_of: int, most_bytes: int | None) -> pa.Table | None:
        self._catch_up(as_of)
        schema = self._row_schema()
        asked = Keys(keys, self._layout.key, schema)
        result = pa.schema([*schema, META_FIELDS[1]])
        ranges = [(run, *run.ranges(asked.hashes)) for run in self._runs()]
        if most_bytes is not None and sum(map(_extent, *zip(*ranges, strict=True))) > most_bytes:
            return None
        base, *tail = (
            run.take(start, stop, columns=run.schema.names[1:])
            for at, (run, start, stop) in enumerate(ranges)
            # Most of the tail has nothing of a few keys.
            if not at or (start < stop).any()
        )
        tables, groups = [base.table], [base.group]
        for table, group in tail:
            if len(group):
                seen = table[TIME].to_numpy() <= as_of
                tables.append(table.filter(pa.array(seen)))
                groups.append(group[seen])
        found = pa.concat_tables([shaped(table, result) for table in tables]).combine_chunks()
        group = np.concatenate(groups)
        mine = asked.matches(found, group)
        if not mine.all():
            found = found.filter(pa.array(mine))
        if len(group) == len(base.group):
            return found
        # Only the tail deletes: the base is consolidated as it is where the tail has nothing.
        touched = np.zeros(len(asked.hashes), dtype=bool)
        touched[group[len(base.group) :]] = True
        changed = pa.array(touched[group[mine]])
        return pa.concat_tables(
            [found.filter(pc.invert(changed)), consolidate(found.filter(changed))]
        )

    def _runs(self) -> list[Run]:
        return [self._loaded(), *self._tail]

    def _loaded(self) -> Run:
        if self._base is None:
            raise InvalidUsage(f"nobody holds the arrangement of {self._shard_id}")
        return self._base

    def _intact(self, work: Callable[[], T]) -> T:
        """`work`, again from the shard if the base turns out to be damaged."""
        for _ in range(_ATTEMPTS):
            try:
                return work()
            except Damaged as error:
                log.warning("a base is damaged", shard=self._shard_id, error=str(error))
                self._mend()
        raise Unavailable(f"bases of {self._shard_id} are damaged again and again")

    def _mend(self) -> None:
        """Make a damaged base again, from the shard."""
        if self._shared is not None:
            self._cache.discard(self._shared.path)
        self._load(min(self._holds.values()))

    # The base.

    def _load(self, as_of: int) -> None:
        """Begin at `as_of`: with a base that is there, or with a new one."""
        shared = self._base_at(as_of) if as_of >= 0 else None
        self._forget()
        self._shared = shared
        self._base = shared.run if shared else Run.of(self._run_schema().empty_table())
        self._as_of = shared.as_of if shared else as_of
        self._upper = Frontier(self._as_of + 1)

    def _base_at(self, as_of: int) -> Base | None:
        """A base that can be brought to `as_of`; None if there never was a row to hold."""
        check_as_of(self._client.state(self._shard_id), as_of)
        self._reader.wait_for_upper_past(as_of)
        if not self._client.state(self._shard_id).schemas:
            return None
        found = self._known(as_of)
        if found is None:
            with self._cache.building(self._identity):
                # Whoever built before us may have built what we need.
                found = self._known(as_of) or self._build(as_of)
        return found

    def _known(self, as_of: int) -> Base | None:
        state = self._client.state(self._shard_id)
        for at, path in self._cache.bases(self._identity):
            if not state.since <= Frontier(at):
                # What came after it cannot be told from what is in it any more, by nobody.
                self._cache.retire(path)
                continue
            if at > as_of:
                continue
            base = self._cache.open(path, at)
            if base is None:
                continue
            if base.run.note.get("born") == state.born and self._fits(base.run):
                return base
            base.close()
            self._cache.discard(path)  # Of a shard that had the same name.
        return None

    def _fits(self, run: Run) -> bool:
        """Its columns are the shard's first: others may have come since."""
        schema = self._row_schema()
        names = columns_of(run.schema)
        types = [run.schema.field(name).type for name in names]
        return names == schema.names[: len(names)] and types == schema.types[: len(names)]

    def _build(self, as_of: int) -> Base:
        state = self._client.machine(self._shard_id).cached
        born, schema = state.born, self._run_schema()

        def prepare(updates: pa.Table) -> pa.Table:
            return shaped(self._layout.prepare(updates, timed=False), schema)

        # In the shard's own order its runs need only be merged; by its own key they are sorted a
        # few keys at a time; for another all is sorted anyway.
        own = self._layout.key == state.key
        in_order = own and not self._layout.order
        if own and not in_order:
            prepared = self._reader.stream_keys(as_of, prepare, self._sizes.sort)
        else:
            read = self._reader.stream if in_order else self._reader.stream_parts
            prepared = map(prepare, read(as_of))
        with self._cache.drafts() as drafts:
            writer = sort_stream(
                prepared, self._layout, schema, drafts.writer, self._sizes, sums=not in_order
            )
            base = self._cache.publish(drafts, writer, self._identity, as_of, born=born)
        pa.default_memory_pool().release_unused()
        return base

    def _forget(self) -> None:
        if self._shared is not None:
            self._shared.close()
        self._shared, self._base, self._tail, self._merging = None, None, [], None
        self._put_off = 0

    def _row_schema(self) -> pa.Schema:
        """The row's columns, as many as the shard has now."""
        updates = self._schema if self._schema is not None else self._reader.schema
        return pa.schema([updates.field(name) for name in self._layout.columns(updates)])

    def _run_schema(self, *, timed: bool = False) -> pa.Schema:
        meta = [META_FIELDS[1], META_FIELDS[0]] if timed else [META_FIELDS[1]]
        return pa.schema([pa.field(HASH, pa.uint64()), *meta, *self._row_schema()])

    # The tail.

    def _catch_up(self, as_of: int) -> None:
        self._loaded()
        if as_of < self._as_of:
            raise InvalidUsage(
                f"the arrangement of {self._shard_id} begins at {self._as_of}, it cannot "
                f"be read at {as_of}",
                hint="hold it at that time first",
            )
        target = Frontier(as_of + 1)
        if target <= self._upper:
            return
        try:
            fresh = self._changes(self._upper, target)
        except AsOfBeforeSince:
            # Compaction overtook us; what it took away lies before every hold. Begin again there.
            least = min(self._holds.values())
            if least <= self._as_of:
                raise
            self._load(least)
            return self._catch_up(as_of)
        self._upper = target
        for run in fresh:
            self._tail.append(run)
            self._shorten()
        if sum(run.rows for run in self._tail) > self._tail_limit():
            self._absorb()

    def _changes(self, lower: Frontier, upper: Frontier) -> list[Run]:
        """What happened in between, as runs: one in memory, or many updates as a file."""
        machine = self._client.machine(self._shard_id)
        state = machine.cached if upper <= machine.cached.upper else machine.refresh()
        memory = sum(part.memory for part in overlapping(state, lower, upper))
        if memory <= self._sizes.sort:
            updates = self._reader.updates(lower, upper)
            if not updates.num_rows:
                return []
            self._learn(updates.schema)
            run = Run.of(self._layout.sort(self._layout.prepare(updates, timed=True)))
            return [run] if run.rows else []
        self._learn(self._reader.schema)
        schema = self._run_schema(timed=True)
        prepared = (
            shaped(self._layout.prepare(table, timed=True), schema)
            for table in self._reader.stream_updates(lower, upper)
        )
        with self._cache.drafts() as drafts:
            writer = sort_stream(prepared, self._layout, schema, drafts.writer, self._sizes)
            run = writer.finish()
        return [run] if run.rows else []

    def _learn(self, updates: pa.Schema) -> None:
        if self._schema is not None and len(updates) > len(self._schema):
            self._schema = updates

    def _shorten(self) -> None:
        """Merge the newest runs of a tail that has too many, and older ones as small as those."""
        # What is being merged into a new base is left as it is.
        first = len(self._merging.tail) if self._merging is not None else 0
        if len(self._tail) - first <= MAX_TAIL_RUNS:
            return
        start = max(len(self._tail) - 2, first)
        rows = sum(run.rows for run in self._tail[start:])
        while start > first and self._tail[start - 1].rows <= 2 * rows:
            start -= 1
            rows += self._tail[start].rows
        self._tail[start:] = [self._merged(self._tail[start:])]

    def _merged(self, runs: list[Run]) -> Run:
        schema = self._run_schema(timed=True)
        if sum(run.nbytes for run in runs) <= self._sizes.sort:
            tables = [table for stream in self._streams(runs, schema) for table in stream]
            return Run.of(self._layout.sort(pa.concat_tables(tables)))
        return self._in_file(runs)

    def _in_file(self, runs: list[Run]) -> Run:
        """Runs of the tail as one, mapped."""
        schema = self._run_schema(timed=True)
        streams = self._streams(runs, schema)
        with self._cache.drafts() as drafts:
            writer = drafts.writer(schema)
            return write(writer, merge(streams, self._layout, self._sizes)).finish()

    def _streams(
        self,
        runs: list[Run],
        schema: pa.Schema,
        *,
        until: int | None = None,
        after: int | None = None,
    ) -> list[Iterator[pa.Table]]:
        """Runs for a merge, of their updates at some times only."""

        def stream(tables: Iterator[pa.Table]) -> Iterator[pa.Table]:
            for table in tables:
                if until is not None and TIME in table.column_names:
                    table = table.filter(pc.less_equal(table[TIME], until))
                if after is not None:
                    table = table.filter(pc.greater(table[TIME], after))
                yield shaped(table, schema)

        return [stream(tables) for tables in slices(runs, self._sizes)]

    def _tail_limit(self) -> float:
        return max(MIN_TAIL_ROWS, TAIL_SHARE * self._loaded().rows, self._put_off)

    def _absorb(self) -> None:
        """Have merged into a new base what every holder may already see."""
        if self._merging is not None:
            return
        assert self._upper.time is not None
        limit = min(*self._holds.values(), self._upper.time - 1)
        old = sum(
            int((table[TIME].to_numpy() <= limit).sum())
            for stream in slices(self._tail, self._sizes)
            for table in stream
        )
        if old <= self._tail_limit():
            return  # Some holder is far behind; rewriting the base would change little.
        merging = self._merging = Merging(self._loaded(), tuple(self._tail), limit)
        if merging.base.rows <= ASIDE_ROWS:
            try:
                self._take(merging, *self._new_base(merging))
            finally:
                self._merging = None
        else:
            name = f"merge-{self._shard_id}"
            threading.Thread(target=self._merge, args=(merging,), name=name, daemon=True).start()

    def _merge(self, merging: Merging) -> None:
        """In a thread of its own. If that fails the old base is still right, unless it is damaged;
        it is tried again when the tail is twice as long."""
        try:
            found = self._new_base(merging)
        except Damaged:
            found = None
        except Exception as error:
            log.warning("a base could not be made anew", shard=self._shard_id, error=str(error))
            with self._lock:
                if self._merging is merging:
                    self._merging = None
                    self._put_off = 2 * sum(run.rows for run in merging.tail)
            return
        with self._lock:
            if self._merging is not merging:
                return
            self._merging = None
            if found is not None:
                self._take(merging, *found)
            else:
                self._mend()

    def _new_base(self, merging: Merging) -> tuple[Base, Run]:
        """The base, and what is left of the tail."""
        base, tail, limit = merging
        schema, timed = self._run_schema(), self._run_schema(timed=True)
        born = self._client.machine(self._shard_id).cached.born
        with self._cache.drafts() as drafts:
            streams = self._streams([base, *tail], schema, until=limit)
            writer = drafts.writer(schema)
            write(writer, merge(streams, self._layout, self._sizes, sums=True))
            streams = self._streams([*tail], timed, after=limit)
            rest = write(drafts.writer(timed), merge(streams, self._layout, self._sizes)).finish()
            return self._cache.publish(drafts, writer, self._identity, limit, born=born), rest

    def _take(self, merging: Merging, shared: Base, rest: Run) -> None:
        """Go on with the new base, unless somebody has come who must not see all of it."""
        if merging.limit > min(self._holds.values()):
            shared.close()
            return
        before = self._shared
        self._shared, self._base, self._as_of = shared, shared.run, merging.limit
        self._tail[: len(merging.tail)] = [rest] if rest.rows else []
        self._put_off = 0
        if before is not None:
            before.close()
            if before.path != shared.path:
                self._cache.retire(before.path)


@contextmanager
def open_arrangement(
    client: PersistClient,
    shard_id: str,
    key: tuple[str, ...],
    *,
    folder: Path | str,
    as_of: int,
    order: str | tuple[str, ...] | None = None,
    schema: pa.Schema | None = None,
    errors: bool = False,
) -> Iterator[Arrangement]:
    """The shard by `key`, readable from `as_of` on while it is open.

    For plain look-ups, and for the workers of a Spark job: processes that give the same folder
    share the base. It holds no lease: who looks up at later times, or for long, takes one.
    """
    cache = Cache(folder, client.config)
    arrangement = Arrangement(
        client, shard_id, key, cache=cache, order=order, schema=schema, errors=errors
    )
    arrangement.hold("opened", as_of)
    try:
        yield arrangement
    finally:
        arrangement.release("opened")


def _extent(run: Run, start: np.ndarray, stop: np.ndarray) -> float:
    """About how many bytes of the run lie in these ranges."""
    count = int((stop - start).sum())
    return count * run.nbytes / run.rows if count else 0


_unnamed: WeakKeyDictionary[PersistClient, str] = WeakKeyDictionary()


def region_of(client: PersistClient) -> str:
    """What tells a client's shards from another region's; memory is every client's own."""
    address = client.address
    if address is not None and "mem" not in (address.blob[:3], address.consensus[:3]):
        return f"{address.blob} {address.consensus}"
    return _unnamed.setdefault(client, uuid4().hex)
