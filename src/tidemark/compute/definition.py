"""What a view without a server is, written down beside it, so that whoever comes next can tell.

    view-<output>-definition       its query, its inputs and where it began; outlives the view
    view-<output>-<n>-f-…          what the n-th view of that output keeps besides it
    dataflow-view-<output>-<n>…    its holds, on its inputs and on its own shards
    <output>                       its rows, a shard like any other

The sink would correct whatever it finds in the output, and so a mistyped name would overwrite
somebody's data, correctly. Hence the record: an output is taken only if it is new, or was made by
a view that computes the same (the plan's fingerprint, which names columns, types and shards; not
the text), or by one that was dropped. A server never touches these shards and holds, whose names
are not among its own (`control/catalog.py`), nor does a view touch a server's.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Literal, NamedTuple

import msgspec

from tidemark.compute.dataflow import holder_of
from tidemark.compute.plan import Get, Plan, collections_of, fingerprint
from tidemark.compute.queries import check_maintainable
from tidemark.compute.sql import parse_query, plan_query
from tidemark.errors import (
    AsOfBeforeSince,
    Fenced,
    InvalidUsage,
    SqlError,
    Unavailable,
    Unsupported,
)
from tidemark.frontier import Frontier
from tidemark.persist import PersistClient
from tidemark.persist.holds import check_as_of
from tidemark.persist.names import check_shard_id
from tidemark.persist.updates import row_names
from tidemark.storage.definitions import Definitions, read_definitions
from tidemark.types import Column, check_columns, type_of_arrow

AsOf = int | Literal["earliest", "latest"]

VIEW, LAST = "view", "last"
_PREFIX, _SUFFIX = "view-", "-definition"


class Query(NamedTuple):
    """A planned query over shards; `inputs` are the tables that it reads, by name."""

    sql: str
    dialect: str
    plan: Plan
    inputs: dict[str, str]
    columns: dict[str, tuple[Column, ...]]
    """Of each shard, as they are planned with."""

    @property
    def names(self) -> dict[str, str]:
        """What the query calls its shards."""
        return {shard: name for name, shard in self.inputs.items()}


class Definition(msgspec.Struct, frozen=True, omit_defaults=True):
    """`number` counts the views that the output has had: names of dropped shards are used up."""

    output: str
    number: int
    sql: str
    dialect: str
    inputs: dict[str, str]
    columns: dict[str, tuple[Column, ...]]
    """Of each input when the view was made: what is added later is not part of `*`."""
    fingerprint: str
    as_of: int
    dropped: bool = False
    """Dropping it has begun."""

    @property
    def id(self) -> str:
        return f"{_PREFIX}{self.output}-{self.number}"

    @property
    def prefix(self) -> str:
        """How the names of its fragments' shards begin."""
        return f"{self.id}-"


def planned(
    client: PersistClient,
    sql: str,
    inputs: Mapping[str, str],
    *,
    dialect: str = "postgres",
    known: Mapping[str, tuple[Column, ...]] | None = None,
) -> Query:
    """`sql` over shards, whose schemas say what columns there are unless `known` does.

    Raises with the reason what is not SQL, not there, or cannot be maintained. Inputs that the
    query does not read are left alone.
    """
    tables = _Tables(client, inputs, known or {})
    plan = plan_query(parse_query(sql, dialect), tables, view=True)
    check_columns(plan.columns)
    check_maintainable(plan)
    read = {n: s for n, s in tables.inputs.items() if s in collections_of(plan)}
    columns = {shard: tables.columns[shard] for shard in read.values()}
    return Query(sql, dialect, plan, read, columns)


class _Tables:
    """Resolves the tables of a query to shards; a collection's id is its shard's."""

    def __init__(
        self,
        client: PersistClient,
        inputs: Mapping[str, str],
        known: Mapping[str, tuple[Column, ...]],
    ):
        self._client = client
        self._given = inputs
        self.inputs: dict[str, str] = {}
        self.columns = dict(known)

    def resolve(self, parts: tuple[str, ...]) -> Get | Plan:
        name = ".".join(parts)
        shard = self._given.get(name)
        if shard is None:
            hint = f"inputs are: {', '.join(sorted(self._given)) or 'none'}"
            if name in {each.lower() for each in self._given}:
                hint += "; a name that is not all lower case is quoted in SQL"
            raise SqlError(f'relation "{name}" does not exist', hint=hint, sqlstate="42P01")
        self.inputs[name] = shard
        found = columns_of_shard(self._client, shard)
        return Get(shard, self.columns.setdefault(shard, found))


def columns_of_shard(client: PersistClient, shard: str) -> tuple[Column, ...]:
    """A shard's columns in SQL, by the schema that its writer registered."""
    check_as_of(client.state(shard), None)
    schema = client.open_reader(shard).schema
    columns = []
    for name in row_names(schema):
        try:
            columns.append(Column(name, type_of_arrow(schema.field(name).type)))
        except SqlError as error:
            raise Unsupported(
                f"column {name} of shard {shard}: {error.message}", hint=error.hint
            ) from None
    return tuple(columns)


def define(
    client: PersistClient,
    sql: str,
    inputs: Mapping[str, str],
    output: str,
    *,
    dialect: str = "postgres",
    as_of: AsOf = "earliest",
) -> tuple[Query, Definition]:
    """The view of that query in that output, as it is or, if there is none, as it is from now on.

    A view that is there began where it began, whatever `as_of` says.
    """
    check_shard_id(output)
    found = defined(client, output)
    if found is not None and found.dropped:
        drop(client, output)
        found = None
    known = found.columns if found is not None else None
    query = planned(client, sql, inputs, dialect=dialect, known=known)
    if output in query.inputs.values():
        raise InvalidUsage(f"shard {output} cannot be both input and output")
    wanted = fingerprint(query.plan)
    if found is None:
        found = _defined_anew(client, query, output, wanted, as_of)
    if found.fingerprint != wanted:
        raise InvalidUsage(
            f"shard {output} is maintained as another query: {' '.join(found.sql.split())}",
            hint=f"name another output, or drop that view first: tidemark view drop {output}",
        )
    return query, found


def _defined_anew(
    client: PersistClient, query: Query, output: str, wanted: str, as_of: AsOf
) -> Definition:
    begin = _check_output(client, output, query.plan.columns)
    time = max(begin, _first_time(client, query.inputs, as_of))
    rows = Definitions(client, definition_shard(output))
    if VIEW in rows.rows:  # Somebody was faster.
        return msgspec.json.decode(rows.rows[VIEW], type=Definition)
    number = int(rows.rows.get(LAST, "0")) + 1
    made = Definition(
        output, number, query.sql, query.dialect, query.inputs, query.columns, wanted, time
    )
    try:
        rows.change({VIEW: msgspec.json.encode(made).decode(), LAST: str(number)})
    except Fenced:
        raise Unavailable(f"somebody else is making a view of {output}", hint="try again") from None
    for shard in query.inputs.values():
        client.open_critical_since(shard, holder_of(made.id)).downgrade(Frontier(time))
    return made


def _check_output(client: PersistClient, output: str, columns: tuple[Column, ...]) -> int:
    """The first time that is the view's to say; raises for a shard that is not for a view."""
    state = client.state(output)
    if not state.exists:
        return 0
    if state.is_tombstone:
        raise InvalidUsage(
            f"shard {output} was dropped, and its name is used up", hint="name another output"
        )
    record = definition_shard(output)
    if not client.state(record).exists or LAST not in read_definitions(client, record):
        raise InvalidUsage(
            f"shard {output} holds something that no view has made", hint="name another output"
        )
    if state.schemas and _plain(columns) != _plain(columns_of_shard(client, output)):
        listed = ", ".join(f"{c.name} {c.type}" for c in columns_of_shard(client, output))
        raise InvalidUsage(
            f"shard {output}, which a dropped view has left, has other columns: {listed}",
            hint="name another output",
        )
    return (state.upper.time or 1) - 1


def _plain(columns: tuple[Column, ...]) -> list[tuple[str, object]]:
    return [(column.name, column.type.arrow) for column in columns]


def _first_time(client: PersistClient, inputs: Mapping[str, str], as_of: AsOf) -> int:
    states = [client.state(shard) for shard in inputs.values()]
    parts = [part for state in states for part in state.parts]
    upper = min(state.upper for state in states)
    ended = max((part.max_time for part in parts), default=0)
    newest = ended if upper.time is None else upper.time - 1
    earliest = max(state.since.time or 0 for state in states)
    if as_of == "earliest":
        # While nothing is there, nothing happens; and what was loaded at once is hydrated at once.
        begun = min((part.min_time for part in parts), default=0)
        return max(earliest, min(begun, newest))
    if as_of == "latest":
        return max(earliest, newest)
    if type(as_of) is not int or as_of < 0:
        raise InvalidUsage(f"as_of is a time, 'earliest' or 'latest', got {as_of!r}")
    if as_of < earliest:
        raise AsOfBeforeSince(
            f"the inputs can be read together from time {earliest} on, not at {as_of}",
            hint="begin later; 'earliest' is the earliest time there is",
        )
    if as_of > newest:
        raise InvalidUsage(
            f"the inputs have come to time {newest}: a view cannot begin at {as_of} yet",
            hint="'latest' is the latest time there is",
        )
    return as_of


def defined(client: PersistClient, output: str) -> Definition | None:
    """The view of that output, if there is one."""
    shard = definition_shard(output)
    if not client.state(shard).exists:
        return None
    text = read_definitions(client, shard).get(VIEW)
    return msgspec.json.decode(text, type=Definition) if text is not None else None


def found(client: PersistClient, output: str) -> Definition:
    """The view of that output; an error that names the views there are, if there is none."""
    view = defined(client, output)
    if view is None:
        known = ", ".join(each.output for each in all_defined(client))
        raise InvalidUsage(
            f"there is no view of shard {output}", hint=f"views: {known}" if known else None
        )
    return view


def all_defined(client: PersistClient) -> list[Definition]:
    """Every view that there is without a server."""
    shards = (s for s in client.consensus.keys() if s.startswith(_PREFIX) and s.endswith(_SUFFIX))  # noqa: SIM118
    outputs = sorted(s.removeprefix(_PREFIX).removesuffix(_SUFFIX) for s in shards)
    return [view for each in outputs if (view := defined(client, each)) is not None]


def definition_shard(output: str) -> str:
    return check_shard_id(f"{_PREFIX}{output}{_SUFFIX}")


def drop(client: PersistClient, output: str, *, with_output: bool = False) -> Definition:
    """End the view: what it held is released, what it kept is dropped.

    Its rows stay, up to where it came, unless `with_output`: then they go, and the name is used up.
    A process that still maintains the view notices, and stops. Dropping can be repeated.
    """
    view = msgspec.structs.replace(found(client, output), dropped=True)
    rows = Definitions(client, definition_shard(output))
    rows.change({VIEW: msgspec.json.encode(view).decode()})
    release(client, view)
    others = _named_alike(client, view)
    for shard in client.consensus.keys():  # noqa: SIM118
        if not shard.startswith(view.prefix) or shard.endswith(_SUFFIX):
            continue
        if any(shard.startswith(other.prefix) for other in others):
            continue
        if not client.state(shard).is_tombstone:
            client.finalize(shard)
    if with_output and client.state(output).exists:
        client.finalize(output)
    rows.change({VIEW: None})
    return view


def release(client: PersistClient, definition: Definition) -> None:
    """Release all that a view holds outside its own shards."""
    own, below = holder_of(definition.id), holder_of(definition.prefix)
    others = [holder_of(other.id) for other in _named_alike(client, definition)]
    for shard in (*definition.inputs.values(), definition.output):
        with suppress(AsOfBeforeSince):  # Dropped: nothing is held any more.
            for hold in list(client.state(shard).holds):
                if any(hold == other or hold.startswith(f"{other}-") for other in others):
                    continue
                if hold == own or hold.startswith(below):
                    client.open_critical_since(shard, hold).release()


def _named_alike(client: PersistClient, definition: Definition) -> list[Definition]:
    """Other views whose names begin as those of this one's shards do."""
    return [other for other in all_defined(client) if other.id.startswith(definition.prefix)]
