"""`tidemark backup` and `tidemark restore`: a whole region to another place, and back to a new one."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tidemark.errors import InvalidUsage
from tidemark.settings import masked
from tidemark.tools.location import BLOB, CONSENSUS, locate, open_client
from tidemark.tools.output import (
    console,
    counted,
    moment,
    print_json,
    progress,
    reporting,
    size,
    warn,
    without_pandas,
)

if TYPE_CHECKING:
    from tidemark.persist import PersistClient
    from tidemark.persist.backup import Manifest
    from tidemark.persist.blob import Blob as BlobStore

Data = Annotated[Path | None, typer.Option(help="The folder that `tidemark serve` uses.")]
NewData = Annotated[Path | None, typer.Option(help="A folder for a server; created if missing.")]
Blob = Annotated[str | None, typer.Option(help="Blob URI, if not below --data.")]
Consensus = Annotated[str | None, typer.Option(help="Consensus URI, if not below --data.")]
Json = Annotated[bool, typer.Option("--json", help="One JSON document instead of text.")]


def backup(
    to: Annotated[str, typer.Option(help="A new folder, or s3://bucket/prefix.")],
    data: Data = None,
    blob: Blob = None,
    consensus: Consensus = None,
    json: Json = False,
) -> None:
    """Copy everything, as of one moment, whether a server runs or not.

    The key of the secrets, passwords and certificates are not part of it. The secrets themselves,
    encrypted, are if --data says where they are, on the server's machine.
    """
    with reporting():
        without_pandas()
        from tidemark.control.secrets import FOLDER, stored
        from tidemark.persist.backup import back_up

        where = locate(data, blob, consensus)
        if data is None:
            data = _told_data(blob, consensus)
        client = open_client(where)
        try:
            target = _store(to, create=True)
            _check_apart(client.blob.inner, target)
            with progress("backup", quiet=json) as moved:
                secrets = (lambda: stored(data / FOLDER)) if data is not None else dict
                made = back_up(client, target, files=secrets, progress=moved)
            missing = _missing_secrets(client, made)
        finally:
            client.close()
        if missing:
            are = "1 secret is" if missing == 1 else f"{missing} secrets are"
            warn(f"{are} not in this backup: run it with --data, on the server's machine")
        _print(made, json, f"{masked(to)} holds everything as of", missing_secrets=missing)


def restore(
    from_: Annotated[str, typer.Option("--from", help="What `backup --to` was given.")],
    data: NewData = None,
    blob: Blob = None,
    consensus: Consensus = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only read the whole backup and check it.")
    ] = False,
    json: Json = False,
) -> None:
    """Restore a backup to a new place, whose stores may be of other kinds.

    If it breaks off, the same command continues it.
    """
    with reporting():
        without_pandas()
        from tidemark.control.catalog import SHARD
        from tidemark.control.secrets import FOLDER, put_back
        from tidemark.persist.location import open_blob, open_consensus
        from tidemark.persist.restore import check_parts, check_place, read_backup
        from tidemark.persist.restore import restore as bring_back

        source = _store(from_, create=False)
        found = read_backup(source)
        if dry_run:
            with progress("check", quiet=json) as moved:
                check_parts(found, source, progress=moved)
            _print(found.manifest, json, "complete; it holds everything as of")
            return
        if data is None and (blob is None or consensus is None):
            raise InvalidUsage(
                "where to?", hint="give --data DIR, or both --blob URI and --consensus URI"
            )
        folder = (data or Path()).resolve()
        to = open_blob(blob or f"file://{folder / BLOB}")
        log = open_consensus(consensus or f"sqlite://{folder / CONSENSUS}")
        try:
            check_place(found, to, log)
            if data is not None and found.files:
                put_back(data / FOLDER, found.files)
            with progress("restore", quiet=json) as moved:
                bring_back(found, source, to, log, first=SHARD, progress=moved)
        finally:
            log.close()
        if found.files and data is None:
            warn(f"{len(found.files)} secrets stay in the backup: restore them with --data DIR")
        _print(found.manifest, json, "restored; it holds everything as of")


def _missing_secrets(client: PersistClient, made: Manifest) -> int:
    """How many secrets there are whose files the backup has not."""
    from tidemark.control.catalog import SHARD, read_items
    from tidemark.control.secrets import file_name
    from tidemark.persist.backup import FILES

    if client.consensus.head(SHARD) is None:
        return 0
    try:
        items = read_items(client).values()
    except Exception as error:  # Whatever is wrong with the catalog, it is backed up as it is.
        warn(f"whether secrets are missing is not known, as the catalog cannot be read: {error}")
        return 0
    wanted = {FILES + file_name(item.shown) for item in items if item.kind == "secret"}
    return len(wanted.difference(kept.key for kept in made.blobs))


def _told_data(blob: str | None, consensus: str | None) -> Path | None:
    """The data folder of the settings, if the stores are those of the settings, too."""
    from tidemark.settings import resolve

    return resolve().settings.data if blob is None and consensus is None else None


def _store(place: str, *, create: bool) -> BlobStore:
    from tidemark.persist.blob import FileBlob
    from tidemark.persist.location import open_blob

    if "://" in place:
        return open_blob(place)
    folder = Path(place)
    if folder.exists() and not folder.is_dir():
        raise InvalidUsage(f"{place} is not a folder", hint="name a folder, or s3://bucket/prefix")
    if not create and not folder.is_dir():
        raise InvalidUsage(f"there is no folder {place}", hint="name what `backup --to` was given")
    return FileBlob(folder)


def _check_apart(source: BlobStore, target: BlobStore) -> None:
    from tidemark.persist.blob import FileBlob

    if not isinstance(source, FileBlob) or not isinstance(target, FileBlob):
        return
    if target.root.is_relative_to(source.root):
        raise InvalidUsage(
            f"{target.root} is where the parts themselves are", hint="name a folder elsewhere"
        )


def _print(manifest: Manifest, json: bool, what: str, **more: int) -> None:
    document: dict[str, Any] = {
        "backup": manifest.sha256,
        "taken_ms": manifest.taken_ms,
        "shards": len(manifest.shards),
        "updates": sum(shard.updates for shard in manifest.shards),
        "parts": sum(shard.parts for shard in manifest.shards),
        "bytes": manifest.size,
        **more,
    }
    if json:
        print_json(document)
        return
    stored = ", ".join(
        counted(document[each], each[:-1]) for each in ("shards", "updates", "parts")
    )
    console().print(
        f"{what} {moment(manifest.taken_ms)} UTC: {stored}, {size(manifest.size)}",
        markup=False,
    )
