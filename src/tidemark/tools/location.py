"""Where the shards are, and which one is meant. Nothing is created: a typo is an error."""

from __future__ import annotations

import difflib
import os
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl, unquote, urlencode, urlsplit, urlunsplit

from tidemark.errors import Corruption, Determinate, InvalidUsage, TidemarkError
from tidemark.persist.location import Address
from tidemark.settings import resolve as resolve_settings
from tidemark.tools.output import warn

if TYPE_CHECKING:
    from tidemark.persist import Config, PersistClient

BLOB, CONSENSUS = "blob", "consensus.db"
"""Names below a data folder; `tidemark serve` uses the same."""


def locate(data: Path | None, blob: str | None, consensus: str | None) -> Address:
    """The stores that are meant; those not named lie below `data`. If nothing is named, they are
    those of the server that would be started here (`settings`)."""
    if data is None and blob is None and consensus is None:
        told = resolve_settings().settings
        data, blob, consensus = told.data, told.blob, told.consensus
    if data is None and (blob is None or consensus is None):
        raise InvalidUsage(
            "where are the shards?", hint="give --data DIR, or both --blob URI and --consensus URI"
        )
    if data is not None and not (blob and consensus) and not data.is_dir():
        what = "is not a folder" if data.exists() else "does not exist"
        raise InvalidUsage(f"--data {data} {what}", hint="name the folder that the server uses")
    folder = (data or Path()).resolve()
    return Address(blob or f"file://{folder / BLOB}", consensus or f"sqlite://{folder / CONSENSUS}")


def open_client(where: Address, config: Config | None = None) -> PersistClient:
    """A client of stores that exist."""
    from tidemark.persist import PersistClient

    check_consensus(where.consensus)
    check_blob(where.blob)
    return PersistClient.open(blob=where.blob, consensus=where.consensus, config=config)


def check_consensus(uri: str) -> None:
    """Raise unless there is a log of Tidemark's."""
    parts = urlsplit(uri)
    if parts.scheme == "mem":
        raise InvalidUsage(f"{uri} lives in the memory of another process")
    if parts.scheme == "sqlite" and parts.path.strip("/"):
        _check_sqlite(Path(unquote(parts.path)))
    if parts.scheme in ("postgres", "postgresql"):
        _check_postgres(uri)


def _check_sqlite(path: Path) -> None:
    hint = "name the folder that `tidemark serve --data` uses"
    nothing = InvalidUsage(f"there is no Tidemark data in {path.parent}", hint=hint)
    if not path.is_file():
        raise nothing
    if not os.access(path, os.R_OK):
        raise Determinate(f"cannot read {path}: Permission denied")
    if not path.stat().st_size:
        raise Corruption(f"{path} is not a SQLite database", hint=hint)
    query = "SELECT count(*) FROM sqlite_master WHERE name = 'consensus'"
    # Only SQLite may open the file: when a process closes any descriptor of it, it loses all the
    # locks that its connections hold, and another process may then delete the log under them.
    try:
        with closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True)) as connection:
            found = connection.execute(query).fetchone()[0]
    except sqlite3.DatabaseError as error:
        if error.sqlite_errorcode == sqlite3.SQLITE_NOTADB:
            raise Corruption(f"{path} is not a SQLite database", hint=hint) from error
        raise Corruption(f"{path} cannot be read: {error}", hint="restore a backup") from error
    if not found:
        raise nothing


def _check_postgres(uri: str) -> None:
    import psycopg

    parts = urlsplit(uri)
    options = dict(parse_qsl(parts.query))
    schema = options.pop("schema", "public")
    plain = urlunsplit(parts._replace(query=urlencode({"connect_timeout": "5", **options})))
    shown = f"postgres://{parts.hostname or ''}{parts.path}"
    query = "SELECT 1 FROM pg_tables WHERE schemaname = %s AND tablename = 'consensus'"
    try:
        with psycopg.connect(plain) as connection:
            found = connection.execute(query, (schema,)).fetchone()
    except psycopg.Error as error:
        hint = "is PostgreSQL running there, and do user, password and database exist?"
        raise Determinate(f"cannot connect to {shown}: {error}", hint=hint) from error
    if found is None:
        raise InvalidUsage(
            f"there is no Tidemark data in {shown}, schema {schema}",
            hint="use the address that the server uses",
        )


def check_blob(uri: str) -> None:
    """Raise if there can be no parts; a bucket is taken to exist until it is asked."""
    parts = urlsplit(uri)
    if parts.scheme == "mem":
        raise InvalidUsage(f"{uri} lives in the memory of another process")
    if parts.scheme == "file" and not Path(unquote(parts.path)).is_dir():
        raise InvalidUsage(f"there is no folder {unquote(parts.path)}, where the parts should be")


def sql_names(client: PersistClient) -> dict[str, str]:
    """Names of relations by their shards, as far as there is a catalog that can be read."""
    from tidemark.control.catalog import SHARD, read_items

    if client.consensus.head(SHARD) is None:
        return {}
    try:
        items = read_items(client).values()
    except Exception as error:  # Whatever is wrong with the catalog, the shards are there.
        warn(f"relations have no names, as the catalog cannot be read: {error}")
        return {}
    return {item.shard: item.shown for item in items if item.shard is not None}


def resolve(client: PersistClient, name: str) -> str:
    """The shard of that id, or else of the relation of that name."""
    shards = client.consensus.keys()
    if name in shards:
        return name
    relations = {relation: shard for shard, relation in sql_names(client).items()}
    if relations.get(name) in shards:
        return relations[name]
    raise unknown_shard(name, [*shards, *relations])


def unknown_shard(name: str, known: list[str]) -> TidemarkError:
    near = difflib.get_close_matches(name, known, 3, 0.5)
    near = near or [each for each in known if name.lower() in each.lower()][:3]
    if near:
        hint = f"the nearest are: {', '.join(near)}"
    elif known:
        hint = "`tidemark shard list` shows the shards there are"
    else:
        hint = "there are no shards here at all"
    return InvalidUsage(f"there is no shard {name!r}", hint=hint)
