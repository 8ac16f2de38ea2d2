"""fsck: does what is stored of a shard keep its promises? Reads everything, changes nothing.

It looks at the stored form alone, never through the code paths that wrote it:

    Consensus   log ---- L1 L2 L3 ---> a state per version ---- S1 to S7 (see `state`)
                                                |
    Blob        parts <--- P1 to P4 --- every live part, a few thousand rows at a time
                others --- B   blobs that the state does not refer to

    L1  every version can be read, and follows the one before it
    L2  the log begins with a whole state
    L3  a version changes only what its command may change; a merge keeps the sum of diffs
    P1  a live part is there, as large as recorded, readable, and has its schema's columns
    P2  rows, sum of diffs, bounds of times and number of errors are as recorded (and S3)
    P3  statistics bound what they describe
    P4  an ordered part is in run order, and so is a run across its parts
    H   holds and writers are what `commands` can have made of them
    B   blobs besides the live parts: retired, staged by someone, or garbage

Damage is a finding, never an exception. So is a store that cannot be reached, but then the report
is not `complete`. Others may write meanwhile: a part that compaction replaces while it is looked
for is not missed.

What it cannot see: a value that changed into another one that fits all of the above.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any, Literal, NamedTuple, Protocol

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from msgspec import UnsetType
from msgspec.structs import replace

from tidemark.clock import SYSTEM_CLOCK, Clock
from tidemark.errors import Corruption, TidemarkError, Unavailable
from tidemark.frontier import Frontier
from tidemark.ipc import decode_schema, decode_table
from tidemark.persist import filters
from tidemark.persist.blob import Blob
from tidemark.persist.codec import Version, decode, patch, replay
from tidemark.persist.consensus import Consensus, Versioned
from tidemark.persist.names import by_age
from tidemark.persist.order import is_sorted, order
from tidemark.persist.part import conform, placed
from tidemark.persist.state import Batch, Hold, Part, State, WriterState, check, check_step
from tidemark.persist.updates import DIFF, ERR, META_FIELDS, TIME

Severity = Literal["error", "note"]
Progress = Callable[[int, int, str], None]
"""Called with the bytes checked, the bytes there are, and what comes next."""

CHUNK_ROWS = 64 * 1024
GIVE_UP_AFTER = 3
"""Parts in a row that cannot be fetched, after which the store is taken to be away."""

COMMANDS: dict[str, set[str]] = {
    "append": {"upper", "batches", "writers", "rendition", "lead"},
    "follow": {"follows"},
    "expire_writer": {"writers"},
    "register_schema": {"schemas", "key"},
    "evolve_schema": {"schemas"},
    "lease": {"holds", "since"},
    "renew_lease": {"holds", "since"},
    "hold": {"holds", "since"},
    "release_hold": {"holds"},
    "compact": {"batches", "retired"},
    "raise_floor": {"floor"},
    "collect": {"retired"},
    "finalize": {"since", "upper", "batches", "holds", "writers", "retired"},
}
"""What each command may change. Leases and writers that have expired go with any of them."""

CHECKED = (
    *("since", "upper", "schemas", "key", "batches", "retired", "floor"),
    *("rendition", "follows", "lead"),
)

RESTORE_LOG = "restore the shard's log in Consensus from a backup"
RESTORE_PART = "restore that blob from a backup; until then reads that need it fail"
MEND = "keep the data folder as it is and report this: it is a bug or silent damage of the store"
GC = "nothing; `tidemark shard gc` deletes it"


_PARQUET = ds.ParquetFileFormat(
    default_fragment_scan_options=ds.ParquetFragmentScanOptions(
        pre_buffer=False, use_buffered_stream=True, page_checksum_verification=True
    )
)


class Finding(msgspec.Struct, frozen=True):
    severity: Severity
    rule: str
    subject: str
    message: str
    fix: str


class Report(msgspec.Struct, frozen=True):
    shard_id: str
    findings: tuple[Finding, ...] = ()
    versions: int = 0
    parts: int = 0
    rows: int = 0
    bytes: int = 0
    complete: bool = True
    """False if something could not be looked at, so that there may be more to find."""

    @property
    def errors(self) -> tuple[Finding, ...]:
        return tuple(finding for finding in self.findings if finding.severity == "error")

    @property
    def is_clean(self) -> bool:
        return self.complete and not self.errors


class Stores(Protocol):
    """Where shards are: a `PersistClient`, or `Locations`."""

    @property
    def blob(self) -> Blob: ...

    @property
    def consensus(self) -> Consensus: ...


class Locations(NamedTuple):
    blob: Blob
    consensus: Consensus


def fsck(
    stores: Stores,
    shard_id: str,
    *,
    clock: Clock = SYSTEM_CLOCK,
    progress: Progress = lambda done, total, what: None,
) -> Report:
    """Everything that is wrong with the shard, or worth knowing."""
    work = _Fsck(stores, shard_id, clock, progress)
    try:
        work.run()
    except Unavailable as error:
        work.incomplete("store", f"cannot be reached: {error.message}", error.hint)
    except Exception as error:
        work.incomplete("fsck", f"could not go on: {error!r}", MEND)
    return work.report()


def strays(stores: Stores) -> Iterator[tuple[str, int]]:
    """Blobs (and their sizes) that lie in no shard's folder."""
    # Blobs first: a shard is made before its first part.
    stored = list(stores.blob.list())
    known = set(stores.consensus.keys())
    return ((key, size) for key, size in stored if key.partition("/")[0] not in known)


class _Fsck:
    def __init__(self, stores: Stores, shard_id: str, clock: Clock, progress: Progress):
        self._blob, self._consensus = stores.blob, stores.consensus
        self._shard_id = shard_id
        self._clock = clock
        self._progress = progress
        self._findings: dict[tuple[str, str, str], Finding] = {}
        self._versions = self._parts = self._rows = self._bytes = self._away = 0
        self._complete = True

    def report(self) -> Report:
        found = sorted(self._findings.values(), key=lambda f: f.severity)  # Errors come first.
        counts = (self._versions, self._parts, self._rows, self._bytes)
        return Report(self._shard_id, tuple(found), *counts, self._complete)

    def error(self, rule: str, subject: str, message: str, fix: str = MEND) -> None:
        # What is wrong stays wrong in the versions that follow: the first time is enough.
        self._findings.setdefault(
            (rule, subject, message), Finding("error", rule, subject, message, fix)
        )

    def note(self, rule: str, subject: str, message: str, fix: str) -> None:
        self._findings[rule, subject, message] = Finding("note", rule, subject, message, fix)

    def incomplete(self, rule: str, message: str, fix: str | None) -> None:
        self._complete = False
        self.error(rule, self._shard_id, message, fix or "try again when it is back")

    def run(self) -> None:
        # Blobs before the log, so that a part which is appended meanwhile does not look leaked.
        stored = dict(self._blob.list(f"{self._shard_id}/"))
        log = self._scan()
        if log is None:
            return
        self._versions = len(log)
        if not log:
            some = f", but {len(stored)} blobs of it are stored" if stored else ""
            self.incomplete("L1", f"has no log{some}", RESTORE_LOG if stored else "check the name")
            return
        state = self._replay(log)
        if state is None:
            self.incomplete("L1", "its newest state is unknown: parts not checked", RESTORE_LOG)
            return
        schemas = self._check_schemas(state)
        self._check_facts(state, schemas)
        self._check_holds(state)
        self._check_parts(state, schemas)
        self._check_blobs(state, stored)

    # The log.

    def _scan(self) -> list[Versioned] | None:
        try:
            return self._consensus.scan(self._shard_id)
        except Corruption as error:
            self.incomplete("L1", error.message, RESTORE_LOG)
            return None

    def _replay(self, log: list[Versioned]) -> State | None:
        state: State | None = None
        for at, versioned in enumerate(log):
            subject = f"version {versioned.seqno}"
            if at and versioned.seqno != log[at - 1].seqno + 1:
                self.error("L1", subject, f"follows version {log[at - 1].seqno}", RESTORE_LOG)
                state = None
            try:
                version = decode(self._shard_id, versioned)
            except Exception as error:
                self._undecodable(subject, error)
                state = None
                continue
            if not at and not isinstance(version.body, State):
                self.error("L2", subject, "the log begins with a change to nothing", RESTORE_LOG)
            state = self._step(state, version, subject)
        return state

    def _undecodable(self, subject: str, error: Exception) -> None:
        message = error.message if isinstance(error, TidemarkError) else f"cannot be read: {error}"
        hint = error.hint if isinstance(error, TidemarkError) else None
        self.error("L1", subject, message, hint or RESTORE_LOG)

    def _step(self, old: State | None, version: Version, subject: str) -> State | None:
        """The state after `version`; None if that depends on one that is not known."""
        body = version.body
        if isinstance(body, State):
            new = body
            if new.shard_id != self._shard_id:
                self.error("L1", subject, f"is a state of shard {new.shard_id}", RESTORE_LOG)
        elif old is None:
            return None
        else:
            if not isinstance(body.batches, UnsetType):
                start, removed = body.batches.start, body.batches.removed
                if min(start, removed) < 0 or start + removed > len(old.batches):
                    self.error("L1", subject, "changes batches that are not there", RESTORE_LOG)
            new = patch(old, body)
        self._held(subject, lambda: check(new))
        if old is not None:
            before = old
            self._held(subject, lambda: check_step(before, new))
            self._check_command(old, new, version.command, subject)
        return new

    def _held(self, subject: str, checked: Callable[[], object]) -> None:
        try:
            checked()
        except Corruption as error:
            what, _, rule = error.message.rpartition(" (")
            self.error(rule.rstrip(")"), subject, what.partition(": ")[2], RESTORE_LOG)

    def _check_command(self, old: State, new: State, command: str, subject: str) -> None:
        allowed = COMMANDS.get(command)
        if allowed is None:
            self.note("L3", subject, f"by the command {command!r}, unknown here", "see if it is ok")
            return
        for name in CHECKED:
            if name not in allowed and getattr(old, name) != getattr(new, name):
                self.error("L3", subject, f"{command} changed {name}")
        for name in ("holds", "writers"):
            if name not in allowed:
                self._check_expired(old, new, name, f"{subject}: {command}")
        if command == "append" and not _appended(old, new):
            self.error("L3", subject, "append changed batches that were there before")
        if command == "compact" and _diffs(old) != _diffs(new):
            change = f"from {_diffs(old)} to {_diffs(new)}"
            self.error("L3", subject, f"compact changed the sum of diffs {change}")

    def _check_expired(self, old: State, new: State, name: str, subject: str) -> None:
        before: dict[str, Hold | WriterState] = getattr(old, name)
        after: dict[str, Hold | WriterState] = getattr(new, name)
        if any(before.get(each) != held for each, held in after.items()):
            self.error("L3", subject, f"changed {name}")
        for each, held in before.items():
            expires = held.expires_ms
            if each not in after and (expires is None or expires >= new.at_ms):
                self.error("L3", subject, f"dropped {each} of {name} before its time")

    # The newest state.

    def _check_schemas(self, state: State) -> list[pa.Schema | None]:
        schemas: list[pa.Schema | None] = []
        for number, encoded in enumerate(state.schemas):
            subject = f"schema {number}"
            try:
                schema = decode_schema(encoded)
            except Exception as error:
                self.error("S6", subject, f"cannot be read: {error}", RESTORE_LOG)
                schemas.append(None)
                continue
            if tuple(schema)[-len(META_FIELDS) :] != META_FIELDS:
                self.error("S6", subject, "is not one of updates", RESTORE_LOG)
            missing = [name for name in state.key if name not in schema.names]
            if missing:
                self.error("S6", subject, f"lacks the key columns {missing}", RESTORE_LOG)
            schemas.append(schema)
        for number, (old, new) in enumerate(pairwise(schemas), 1):
            if old is not None and new is not None and not _grows(old, new):
                message = "is not the one before it with nullable columns at the end"
                self.error("S6", f"schema {number}", message, RESTORE_LOG)
        return schemas

    def _check_facts(self, state: State, schemas: list[pa.Schema | None]) -> None:
        """What a state can be seen to have wrong without looking at data."""
        for batch in state.batches:
            subject = f"batch {batch.lower} to {batch.upper}"
            edges = [0, *batch.splits, len(batch.parts)]
            if batch.splits and any(a >= b for a, b in pairwise(edges)):
                self.error("P4", subject, f"its runs begin at {batch.splits}", RESTORE_LOG)
            for part in batch.parts:
                for wrong in _wrong(part, self._shard_id, len(schemas)):
                    self.error("P2", _name(part, batch), wrong, RESTORE_LOG)
        for retired in state.retired:
            if retired.seqno > state.seqno:
                self.error("H", retired.key, f"was retired by version {retired.seqno}, to come")
        if state.follows and self._consensus.head(state.follows) is None:
            message = (
                f"follows {state.follows}, which is not there: it can be read to {state.upper}"
            )
            self.error("S7", self._shard_id, message, RESTORE_LOG)
        ahead = state.at_ms - self._clock.now_ms()
        if ahead > 60_000:
            message = f"the last commit lies {ahead // 1000} s in the future"
            self.note("S2", self._shard_id, message, "compare the clocks of the machines")

    def _check_holds(self, state: State) -> None:
        now = self._clock.now_ms()
        for name, hold in state.holds.items():
            subject = f"hold {name}"
            if hold.expires_ms is None and hold.seqno is not None:
                self.error("H", subject, "pins parts for ever: it has no expiry", RESTORE_LOG)
            if hold.epoch < 0 or (hold.seqno is not None and hold.seqno > state.seqno):
                message = f"epoch {hold.epoch}, parts of version {hold.seqno}: not possible"
                self.error("H", subject, message, RESTORE_LOG)
            if hold.expires_ms is not None and hold.expires_ms < now:
                ago = (now - hold.expires_ms) // 1000
                message = f"({hold.purpose or 'no purpose'}) expired {ago} s ago"
                self.note("H", subject, message, "nothing; the next commit to the shard ends it")
        for name, writer in state.writers.items():
            if not writer.upper <= state.upper:
                message = f"appended to {writer.upper}, beyond the shard's {state.upper}"
                self.error("H", f"writer {name}", message, RESTORE_LOG)

    # Parts.

    def _check_parts(self, state: State, schemas: list[pa.Schema | None]) -> None:
        total = sum(part.size for part in state.parts)
        done = 0
        for batch in state.batches:
            for run in batch.runs:
                last: tuple[int, int] | None = None
                if len(run) > 1 and not all(part.ordered for part in run):
                    message = "a run of several parts that are not ordered"
                    self.error("P4", _name(run[0], batch), message, RESTORE_LOG)
                for part in run:
                    self._progress(done, total, part.key or "inside the state")
                    last = self._check_part(part, batch, state.key, schemas, last)
                    done += part.size
        self._progress(done, total, "done")

    def _check_part(
        self,
        part: Part,
        batch: Batch,
        key: tuple[str, ...],
        schemas: list[pa.Schema | None],
        last: tuple[int, int] | None,
    ) -> tuple[int, int] | None:
        """Returns the position that the run has come to."""
        subject = _name(part, batch)
        schema = schemas[part.schema] if 0 <= part.schema < len(schemas) else None
        if schema is None:
            self.error("P1", subject, f"its schema {part.schema} is not known", RESTORE_LOG)
            return None
        tally = _Tally(part, key, last if part.ordered else None)
        try:
            for chunk in self._chunks(part, schema, subject):
                tally.add(chunk)
        except _Gone:
            return None
        except Unavailable as error:
            self._away += 1
            if self._away >= GIVE_UP_AFTER:
                raise
            self._complete = False
            self.error("P1", subject, f"cannot be fetched: {error.message}", error.hint or "retry")
            return None
        except Exception as error:
            reason = next(iter(str(error).splitlines()), repr(error))
            fix = RESTORE_PART if part.key is not None else RESTORE_LOG
            self.error("P1", subject, f"cannot be read: {reason}", fix)
            return None
        self._away = 0
        self._parts, self._rows = self._parts + 1, self._rows + tally.rows
        self._bytes += part.size
        for rule, message in tally.findings(batch):
            self.error(rule, subject, message, RESTORE_PART)
        return tally.last

    def _chunks(self, part: Part, schema: pa.Schema, subject: str) -> Iterator[pa.Table]:
        """The part's updates, each chunk found to be sound in itself."""
        if part.inline is not None:
            table = decode_table(part.inline)
            self._check_columns(part, table.schema, schema, subject)
            yield placed(part, _sound(table, schema))
            return
        source = self._blob.open(part.key or "")
        if source is None:
            if self._is_live(part):
                self.error("P1", subject, "is missing", RESTORE_PART)
            raise _Gone
        with source:
            if source.size() != part.size:
                message = f"has {source.size()} bytes instead of {part.size}"
                self.error("P1", subject, message, RESTORE_PART)
            # As `read_part` reads it, but a few rows at a time.
            fragment = _PARQUET.make_fragment(source)
            self._check_columns(part, fragment.physical_schema, schema, subject)
            for batch in fragment.to_batches(
                batch_size=CHUNK_ROWS, batch_readahead=0, fragment_readahead=0, use_threads=False
            ):
                yield placed(part, _sound(pa.Table.from_batches([batch]), schema))

    def _check_columns(self, part: Part, found: pa.Schema, schema: pa.Schema, subject: str) -> None:
        if (found.names, found.types) != (schema.names, schema.types):
            fields = ", ".join(f"{field.name} {field.type}" for field in found)
            self.error("P1", subject, f"has not schema {part.schema}, but ({fields})", RESTORE_PART)

    def _is_live(self, part: Part) -> bool:
        """Whether the shard still needs it: it may have moved on since its log was read."""
        try:
            log = self._consensus.scan(self._shard_id)
            newest = replay(State(self._shard_id), [decode(self._shard_id, v) for v in log])
        except Unavailable:
            raise
        except Exception:
            return True
        return any(part.key == other.key for other in newest.parts)

    # What else is stored.

    def _check_blobs(self, state: State, stored: dict[str, int]) -> None:
        gone = [retired.key for retired in state.retired if retired.key not in stored]
        if gone:
            self.note("B", _some(gone), "retired, and deleted already", GC)
        live = {part.key for part in state.parts}
        waiting = [r.key for r in state.retired if r.key in stored and r.key not in live]
        if waiting:
            size = sum(stored[key] for key in waiting)
            self.note("B", _some(waiting), f"retired, {size} bytes in all", GC)
        old, young, foreign = by_age(stored.keys() - state.keys, state.floor)
        for keys, message, fix in (
            (old, "garbage: given up by the floor", GC),
            (young, "staged, perhaps in use", "nothing; `tidemark shard gc` deletes it in a day"),
            (foreign, "not a part's name: Tidemark did not write it", "move it elsewhere"),
        ):
            if keys:
                size = sum(stored[key] for key in keys)
                self.note("B", _some(sorted(keys)), f"{message}, {size} bytes in all", fix)


class _Gone(Exception):
    """There is nothing to go on with."""


class _Tally:
    """What a part's chunks come to, against what the state says of it."""

    def __init__(self, part: Part, key: tuple[str, ...], last: tuple[int, int] | None):
        self._part, self._key = part, key
        self.rows = self._diffs = self._errors = 0
        self._times: list[int] = []
        self._nulls = dict.fromkeys(part.stats, 0)
        self._beyond: set[str] = set()
        self._disorder = False
        self.last = last

    def add(self, chunk: pa.Table) -> None:
        if not chunk.num_rows:
            return
        self.rows += chunk.num_rows
        self._diffs += pc.sum(chunk[DIFF]).as_py() or 0
        self._errors += chunk.num_rows - chunk[ERR].null_count
        if chunk[TIME].null_count or chunk[DIFF].null_count:
            raise Corruption("an update has no time or no diff")
        times = pc.min_max(chunk[TIME]).as_py()
        self._times += times.values()
        self._times = [min(self._times), max(self._times)]
        for name, stats in self._part.stats.items():
            if name not in chunk.column_names or not _bounded(chunk[name], stats.least, stats.most):
                self._beyond.add(name)
            else:
                self._nulls[name] += chunk[name].null_count
        if self._part.ordered:
            positions = order(chunk, self._key)
            if self.rows == chunk.num_rows and self._part.first is not None:
                self._disorder |= positions.at(0) != self._part.first
            self._disorder |= not is_sorted(positions)
            self._disorder |= self.last is not None and positions.at(0) < self.last
            self.last = positions.at(-1)

    def findings(self, batch: Batch) -> Iterator[tuple[str, str]]:
        part = self._part
        if self.rows != part.rows:
            yield "P2", f"holds {self.rows} updates instead of {part.rows}"
        if (self._diffs - part.diffs) % 2**64:
            yield "P2", f"its diffs sum up to {self._diffs} instead of {part.diffs}"
        if self._errors != part.errors:
            yield "P2", f"holds {self._errors} error rows instead of {part.errors}"
        if self._times and self._times != [part.min_time, part.max_time]:
            found = "{} to {}".format(*self._times)
            yield "P2", f"its times are {found} instead of {part.min_time} to {part.max_time}"
        if self._times and not (
            batch.lower <= Frontier(self._times[0]) and batch.upper.covers(self._times[1])
        ):
            yield "S3", "holds updates at times {} to {}".format(*self._times)
        for name in sorted(self._beyond):
            yield "P3", f'values of column "{name}" lie beyond its statistics'
        for name in sorted(self._nulls.keys() - self._beyond):
            if self._nulls[name] != part.stats[name].nulls:
                counts = f"{self._nulls[name]} nulls instead of {part.stats[name].nulls}"
                yield "P3", f'column "{name}" has {counts}'
        if self._disorder:
            yield "P4", "is not in run order, or does not begin where the state says"


def _bounded(column: pa.ChunkedArray, least: Any, most: Any) -> bool:
    if least is None and most is None:
        return True
    if pa.types.is_floating(column.type):
        column = column.filter(pc.invert(pc.is_nan(column)))
    found = pc.min_max(column)
    low, high = (
        filters.encoded(found["min"], column.type),
        filters.encoded(found["max"], column.type),
    )
    try:
        above = low is None or least is None or least <= low
        return above and (high is None or most is None or high <= most)  # type: ignore[operator]
    except TypeError:  # Statistics of something else altogether.
        return False


def _sound(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """`table` as the schema has it; an error if its bytes make no sense (bad UTF-8, say)."""
    table.validate(full=True)
    return conform(table, schema)


def _wrong(part: Part, shard_id: str, schemas: int) -> Iterator[str]:
    if (part.key is None) == (part.inline is None):
        yield "is neither in a blob nor in the state, or in both"
    if part.inline is not None and len(part.inline) != part.size:
        yield f"has {len(part.inline)} bytes instead of {part.size}"
    if part.key is not None and not part.key.startswith(f"{shard_id}/"):
        yield "lies in another shard's folder"
    if part.rows < 1 or not 0 <= part.errors <= part.rows:
        yield f"{part.errors} errors among {part.rows} updates: not possible"
    if part.min_time > part.max_time:
        yield f"times from {part.min_time} to {part.max_time}: not possible"
    if not 0 <= part.schema < schemas:
        yield f"names schema {part.schema}, of {schemas}"


def _grows(old: pa.Schema, new: pa.Schema) -> bool:
    rows = len(META_FIELDS)
    before, after = list(old)[:-rows], list(new)[:-rows]
    added = after[len(before) :]
    return after[: len(before)] == before and all(field.nullable for field in added)


def _appended(old: State, new: State) -> bool:
    count = len(old.batches)
    if len(new.batches) == count + 1:
        return new.batches[:count] == old.batches
    if not count:
        return False
    last = replace(old.batches[-1], upper=new.upper)
    return (*old.batches[:-1], last) == new.batches


def _diffs(state: State) -> int:
    return sum(batch.diffs for batch in state.batches)


def _name(part: Part, batch: Batch) -> str:
    return part.key or f"inline part of {batch.lower} to {batch.upper}"


def _some(keys: list[str]) -> str:
    more = f" and {len(keys) - 1} more" if len(keys) > 1 else ""
    return f"{keys[0]}{more}"
