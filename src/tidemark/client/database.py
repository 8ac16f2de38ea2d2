"""`connect`, and the `Database` that it gives.

One `Database` is one session of the server. Threads may share it: their statements are run one
after the other, in one session, so settings and transactions are shared, too. What should run side
by side takes a `Database` each; subscriptions have connections of their own anyway, which begin
with the settings that the session has then.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cache, partial
from typing import Literal, Self

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.types.json import JsonbDumper

from tidemark.client.live import watch
from tidemark.client.load import Loadable, as_rows, csv_blocks, table_of
from tidemark.client.names import quoted, relation, uncommented
from tidemark.client.problems import as_ours, no_connection
from tidemark.client.result import Result
from tidemark.client.subscription import Subscription, statement
from tidemark.client.values import columns_of, load_texts
from tidemark.control.lexer import split
from tidemark.errors import InvalidUsage, SqlError

Parameters = Sequence[object] | Mapping[str, object]

HOST, PORT, NAME = "127.0.0.1", 6875, "tidemark"
"""Where a server is if nothing else was said; the user and the database have the same name."""

_DEFAULTS: dict[str, str | int] = {
    "host": HOST,
    "port": PORT,
    "user": NAME,
    "dbname": NAME,
    "fallback_application_name": "tidemark-python",
    "connect_timeout": 10,
}

_JSON_COLUMNS = (
    "SELECT attname FROM pg_catalog.pg_attribute"
    " WHERE attrelid = $1::regclass AND atttypid = 'jsonb'::regtype"
)

_NUMBERED = re.compile(r"\$[1-9]")
_STREAM = re.compile(r"\b(subscribe|copy)\b", re.IGNORECASE)


def connect(
    dsn: str | None = None,
    *,
    host: str | None = None,
    port: int | None = None,
    user: str | None = None,
    database: str | None = None,
    password: str | None = None,
    sslmode: str | None = None,
    settings: Mapping[str, str] | None = None,
    application_name: str | None = None,
    connect_timeout: int | None = None,
    on_notice: Callable[[str, str], None] | None = None,
    **options: str | int,
) -> Database:
    """Connect to a server; without arguments, to the one on this machine.

    `dsn` is `postgresql://user@host:port/database`, `host=… port=…`, or `host[:port][/database]`;
    what is given by name wins. `settings` are the session's (`{"cluster": "c"}`), and those of its
    subscriptions; `options` are libpq's (`sslrootcert="ca.pem"`). `on_notice` is called with the
    severity and the text of each notice. A server that does not answer is `Unavailable`.
    """
    named = {
        "host": host,
        "port": port,
        "user": user,
        "dbname": database,
        "password": password,
        "sslmode": sslmode,
        "application_name": application_name,
        "connect_timeout": connect_timeout,
    }
    target = _DEFAULTS | _parsed(dsn) | {k: v for k, v in named.items() if v is not None} | options
    if not re.fullmatch(r"[0-9]+(,[0-9]+)*", str(target["port"])):
        raise InvalidUsage(f"a port is a number, not {target['port']!r}")
    return Database(_with_settings(target, settings or {}), on_notice=on_notice)


def _parsed(dsn: str | None) -> dict:
    if not dsn:
        return {}
    if "=" in dsn or "://" in dsn:
        try:
            found = conninfo_to_dict(dsn)
        except psycopg.ProgrammingError as error:
            raise InvalidUsage(
                f"not a connection string: {str(error).strip()}",
                hint="write postgresql://user@host:6875/database, or host[:port][/database]",
            ) from error
        return {key: value for key, value in found.items() if value is not None}
    if dsn.startswith("/"):  # The folder of a socket.
        return {"host": dsn}
    place, _, database = dsn.partition("/")
    found = {"dbname": database} if database else {}
    name, colon, port = place.rpartition(":")
    if colon and port.isdigit() and not name.endswith(":"):
        return {**found, "host": name.strip("[]"), "port": int(port)}
    return {**found, "host": place}


def _with_settings(target: dict, settings: Mapping[str, str]) -> dict:
    if not settings:
        return target
    told = [f"-c {_setting(*each)}" for each in settings.items()]
    return target | {"options": " ".join([str(target.get("options", "")), *told]).lstrip()}


def _setting(name: str, value: str) -> str:
    escaped = re.sub(r"([\s\\])", r"\\\1", str(value))
    return f"{name}={escaped}"


def _check_has_result(query: str) -> None:
    """What goes on for ever is no result; and a COPY whose rows nobody takes holds up its session
    for good."""
    if not _STREAM.search(query):
        return
    try:
        begun = [_STREAM.match(uncommented(each)) for each in split(query)]
    except SqlError:  # The server says better what is wrong.
        return
    words = {found[1].lower() for found in begun if found}
    if "subscribe" in words:
        raise InvalidUsage(
            "a SUBSCRIBE has no end, so it is no result",
            hint="for batch in db.subscribe(...), or db.live(...)",
        )
    if "copy" in words:
        raise InvalidUsage(
            "a COPY is a stream, so it has no result",
            hint="db.insert(...) writes rows, db.sql(...) of a SELECT reads them, "
            "db.connection.cursor().copy(...) is COPY itself",
        )


class Database:
    """A session of a server; a context manager that closes it."""

    def __init__(self, target: dict, *, on_notice: Callable[[str, str], None] | None = None):
        self._target = target
        self._on_notice = on_notice
        self._connection = self._open(target)
        self._on_close: Callable[[], None] | None = None

    # ---- statements --------------------------------------------------------------------------

    def sql(self, query: str, parameters: Parameters | None = None) -> Result:
        """Run a statement and receive its answer, of the last one if there are several.

        Parameters stand as `$1`, `$2` in the text, or as psycopg writes them: `%s`, `%(name)s`.
        """
        _check_has_result(query)
        with as_ours(), self._cursor(self._connection, query, parameters) as cursor:
            cursor.execute(query.encode(), parameters)
            while cursor.nextset():
                pass
            rows = cursor.fetchall() if cursor.description is not None else []
            status = cursor.statusmessage or ""
            return Result(columns_of(cursor), rows, status, max(cursor.rowcount, 0))

    def execute(self, query: str, parameters: Parameters | None = None) -> int:
        """Run a statement, or several; how many rows the last one has written."""
        return self.sql(query, parameters).affected

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Commit at the end of the block, or roll back if it raises."""
        with as_ours(), self._connection.transaction():
            yield

    # ---- data in -----------------------------------------------------------------------------

    def insert(self, table: str, data: Loadable) -> int:
        """Insert rows, all of them or none: an Arrow table, a pandas, Polars or Spark data frame,
        a `Result`, a dict of columns or a list of dicts. Columns go by their names."""
        with as_rows():
            given = table_of(data, cache(partial(self._json_columns, table)))
        if not given.num_columns:
            return 0
        names = ", ".join(quoted(name) for name in given.column_names)
        sql = f"COPY {relation(table)} ({names}) FROM STDIN (FORMAT csv)"
        with as_ours(), as_rows(), self._connection.cursor() as cursor:
            with cursor.copy(sql.encode()) as copy:
                for block in csv_blocks(given):
                    copy.write(block)
            return cursor.rowcount

    def _json_columns(self, table: str) -> set[str]:
        found = self.sql(_JSON_COLUMNS, [relation(table)])
        return {name for (name,) in found.rows()}

    # ---- data that changes -------------------------------------------------------------------

    def subscribe(
        self,
        what: str,
        parameters: Parameters | None = None,
        *,
        snapshot: bool = True,
        as_of: int | None = None,
        up_to: int | None = None,
        progress: bool = False,
        envelope: Literal["upsert", "debezium"] | None = None,
        key: str | Sequence[str] = (),
    ) -> Subscription:
        """Follow a relation or a query: what it has, then every change, as batches.

        To go on where another subscription ended: `as_of=batch.time, snapshot=False`, as far back
        as the relation's RETAIN HISTORY reaches. With `progress`, time that passes without a change
        is a batch, too, whose time is to be kept as well. `up_to` is where it ends.
        An `envelope` shows what happened to keys instead of rows that came and went.
        """
        names = (key,) if isinstance(key, str) else tuple(key)
        sql = statement(
            what, snapshot=snapshot, as_of=as_of, up_to=up_to, envelope=envelope, key=names
        )
        return self.subscription(sql, parameters, progress=progress)

    def subscription(
        self, sql: str, parameters: Parameters | None = None, *, progress: bool = False
    ) -> Subscription:
        """The same of a SUBSCRIBE statement that says PROGRESS."""
        connection = self._open(self._as_the_session())
        cursor = self._cursor(connection, sql, parameters)
        return Subscription(connection, cursor, sql, parameters, progress=progress)

    def live(
        self,
        what: str,
        parameters: Parameters | None = None,
        *,
        order_by: str | None = None,
        limit: int = 40,
        updates: int | None = None,
    ) -> None:
        """Show a relation or a query as a table that changes in place, until Ctrl-C (in a
        notebook: until the kernel is interrupted), or after so many `updates`.

        `order_by` names columns of the table: `"total desc, name"`.
        """
        with self.subscribe(what, parameters, progress=True) as subscription:
            watch(subscription, order_by=order_by, limit=limit, updates=updates)

    # ---- the connection ----------------------------------------------------------------------

    @property
    def connection(self) -> psycopg.Connection:
        """What is underneath, for what is not here: cursors, pipelines, COPY. It gives texts."""
        return self._connection

    @property
    def closed(self) -> bool:
        """Closed by `close`, or by the server."""
        return self._connection.closed

    def cancel(self) -> None:
        """From another thread: stop the statement that runs."""
        with as_ours():
            self._connection.cancel_safe()

    def reconnect(self, *, database: str | None = None, user: str | None = None) -> None:
        """A new session in place of this one, perhaps elsewhere: settings and transaction are gone.
        If that fails, this one stays."""
        before = dict(self._target)
        given = {"dbname": database, "user": user}
        self._target |= {key: value for key, value in given.items() if value is not None}
        try:
            connection = self._open(self._target)
        except BaseException:
            self._target = before
            raise
        self._connection.close()
        self._connection = connection

    def close(self) -> None:
        self._connection.close()
        if self._on_close is not None:
            self._on_close()
            self._on_close = None

    def on_close(self, then: Callable[[], None]) -> None:
        """Something that ends with this database: `local` has its server stopped so."""
        self._on_close = then

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        where = "{user}@{host}:{port}/{dbname}".format(**self._target)
        return f"<tidemark.Database {where}{' (closed)' if self.closed else ''}>"

    def _as_the_session(self) -> dict:
        """Where a connection goes that begins with the settings that this session has now."""
        if self._connection.closed:  # It may have been lost; its settings are gone then.
            return self._target
        from tidemark.control.variables import READ_ONLY  # It takes a moment, and few need it.

        settings = dict(self.sql("SHOW ALL").rows())
        # What libpq says of these by itself counts more than its `options`.
        target = self._target | {"application_name": settings.pop("application_name")}
        if (database := settings.pop("database")) != target["dbname"]:
            target["dbname"] = database
            # ~/.pgpass may have one for the session's own database only.
            if password := self._connection.info.password:
                target["password"] = password
        return _with_settings(target, {k: v for k, v in settings.items() if k not in READ_ONLY})

    def _open(self, target: dict) -> psycopg.Connection:
        try:
            connection = psycopg.connect(make_conninfo(**target), autocommit=True)
        except psycopg.ProgrammingError as error:
            raise InvalidUsage(str(error).strip(), hint="options are those of libpq") from error
        except psycopg.OperationalError as error:
            raise no_connection(error, target["host"], target["port"]) from error
        load_texts(connection)
        connection.adapters.register_dumper(dict, JsonbDumper)  # As `insert` takes them.
        if self._on_notice is not None:
            tell = self._on_notice
            connection.add_notice_handler(
                lambda said: tell(said.severity or "NOTICE", said.message_primary or "")
            )
        return connection

    @staticmethod
    def _cursor(
        connection: psycopg.Connection, query: str, parameters: Parameters | None
    ) -> psycopg.Cursor:
        """One that understands how this query writes its parameters."""
        if isinstance(parameters, str | bytes) or not isinstance(
            parameters, Sequence | Mapping | None
        ):
            raise InvalidUsage(
                f"parameters are a list or a mapping, not {parameters!r}",
                hint="of one parameter, a list of one",
            )
        if parameters is not None and _NUMBERED.search(query):
            if isinstance(parameters, Mapping):
                raise InvalidUsage("$1 takes its value from a list, not from a mapping")
            return psycopg.RawCursor(connection)
        return connection.cursor()

    def __del__(self) -> None:
        with suppress(Exception):
            self._connection.close()
