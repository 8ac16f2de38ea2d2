"""Care by hand: merge what is due, delete garbage, check everything."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tidemark.persist import FileBlob, PersistClient
from tidemark.persist.blob import AN_HOUR
from tidemark.persist.commands import collectable
from tidemark.persist.compact import compact, due
from tidemark.persist.fsck import Report, strays
from tidemark.persist.gc import collect, collect_leaked, leaked
from tidemark.persist.names import by_age
from tidemark.persist.state import Batch, State
from tidemark.tools.output import console, counted, print_table, size, span

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RACES = 10
"""Merges in a row that others spoil, after which the shard is left to them."""

_ASIDE = re.compile(r"\..+\.[0-9a-f]{32}")

Progress = Callable[[int, int, str], None]


def merge(
    client: PersistClient,
    shard_id: str,
    *,
    full: bool,
    progress: Progress,
    spark: SparkSession | None = None,
) -> dict[str, Any]:
    """Merge until nothing is due, or (`full`) until one batch of one run is left; here or on
    `spark`."""
    machine = client.machine(shard_id)
    before = machine.refresh()
    merges = spoilt = 0
    while spoilt < RACES:
        state = machine.refresh()
        batches = _all(state) if full else due(state, client.config)
        if not batches:
            break
        progress(merges, merges + len(batches), f"{shard_id}: {len(state.batches)} batches")
        if spark is None:
            done = compact(machine, client.blob, batches)
        else:
            from tidemark.spark.compact import merge as merge_on

            done = merge_on(
                spark,
                client,
                shard_id,
                batches,
                report=lambda now: progress(now.tasks_done, now.tasks, f"{shard_id}: tasks"),
            )
        merges, spoilt = (merges + 1, 0) if done else (merges, spoilt + 1)
    after = machine.refresh()
    return {
        "id": shard_id,
        "merges": merges,
        "given_up": spoilt >= RACES,
        "before": _shape(before),
        "after": _shape(after),
        "retired": len(after.retired),
    }


def _all(state: State) -> tuple[Batch, ...]:
    """Everything, unless it is one run already from which nothing is left to forget."""
    batches = state.batches
    settled = len(batches) == 1 and len(batches[0].runs) <= 1 and batches[0].since == state.since
    inline = any(part.inline is not None for part in state.parts)
    return () if not state.rows or (settled and not inline) else batches


def _shape(state: State) -> dict[str, int]:
    return {
        "batches": len(state.batches),
        "runs": sum(len(batch.runs) for batch in state.batches),
        "parts": sum(1 for _ in state.parts),
        "updates": state.rows,
        "bytes": sum(part.size for part in state.parts),
    }


def print_merged(rows: list[dict[str, Any]]) -> None:
    def change(row: dict[str, Any], name: str, shown: Callable[[int], str]) -> str:
        before, after = shown(row["before"][name]), shown(row["after"][name])
        return after if before == after else f"{before} → {after}"

    names = ("batches", "runs", "parts", "updates")
    print_table(
        ("shard", "merges>", *(f"{name}>" for name in names), "size>", "retired>"),
        [
            (
                row["id"],
                row["merges"],
                *(change(row, name, lambda n: f"{n:,}") for name in names),
                change(row, "bytes", size),
                row["retired"],
            )
            for row in rows
        ],
    )
    if any(row["given_up"] for row in rows):
        console().print("others merged the same batches meanwhile; left to them")
    if any(row["retired"] for row in rows):
        console().print("retired parts stay until `tidemark shard gc` (or the server) deletes them")


def sweep(
    client: PersistClient, shard_id: str, *, older_than_ms: int, dry_run: bool
) -> dict[str, Any]:
    """Delete (or, dry, only find) retired parts nobody reads and parts nobody appended."""
    machine = client.machine(shard_id)
    now = client.clock.now_ms()
    stored = dict(client.blob.list(f"{shard_id}/"))
    state = machine.refresh()
    gone = set(collectable(state, now))
    floor = max(now - older_than_ms, state.floor)
    old, young, foreign = by_age(leaked(machine, client.blob), floor)
    row = {
        "id": shard_id,
        "dry_run": dry_run,
        "retired": _amount(gone, stored),
        "leaked": _amount(old, stored),
        "pinned": _pinned(state, gone, now),
        "staged": _amount(young, stored),
        "foreign": foreign,
    }
    if dry_run:
        return row
    collect(machine, client.blob)
    collect_leaked(machine, client.blob, older_than_ms=older_than_ms)
    return row


def _amount(keys, stored: dict[str, int]) -> dict[str, int]:
    return {"parts": len(keys), "bytes": sum(stored.get(key, 0) for key in keys)}


def _pinned(state: State, gone: set[str], now: int) -> dict[str, Any]:
    """Retired parts that must stay, and the leases that want them."""
    kept = [retired for retired in state.retired if retired.key not in gone]
    first = max((retired.seqno for retired in kept), default=0)
    leases = [
        {"id": name, "purpose": hold.purpose, "expires_in_ms": hold.expires_ms - now}
        for name, hold in state.holds.items()
        if kept
        and hold.seqno is not None
        and hold.expires_ms is not None
        and hold.expires_ms >= now
        and hold.seqno < first
    ]
    return {"parts": len(kept), "leases": leases}


def leftovers(client: PersistClient, *, older_than_ms: int, dry_run: bool) -> int:
    """Files that dead processes left half written; how many there were."""
    blob = client.blob.inner
    if not isinstance(blob, FileBlob):
        return 0
    age = max(older_than_ms, AN_HOUR)
    if not dry_run:
        return blob.remove_leftovers(age)
    before = (client.clock.now_ms() - age) * 1_000_000
    return sum(
        os.stat(os.path.join(folder, name)).st_mtime_ns < before
        for folder, _, names in os.walk(blob.root)
        for name in names
        if _ASIDE.fullmatch(name)
    )


def print_swept(rows: list[dict[str, Any]], leftover: int | None, *, dry_run: bool) -> None:
    verb = "would delete" if dry_run else "deleted"
    print_table(
        ("shard", f"retired, {verb}>", f"leaked, {verb}>", "freed>", "pinned>", "staged, kept>"),
        [
            (
                row["id"],
                row["retired"]["parts"],
                row["leaked"]["parts"],
                size(row["retired"]["bytes"] + row["leaked"]["bytes"]),
                row["pinned"]["parts"],
                row["staged"]["parts"],
            )
            for row in rows
        ],
    )
    out = console()
    for row in rows:
        for lease in row["pinned"]["leases"]:
            until = span(lease["expires_in_ms"])
            text = f"{row['id']}: pinned by {lease['id']} ({lease['purpose']}), at most {until}"
            out.print(f"{text} more unless it is renewed", markup=False)
        for key in row["foreign"]:
            out.print(f"{key}: not a part's name, so it was left alone", markup=False)
    if leftover:
        out.print(f"{verb} {leftover} files that dead processes left half written")


def print_reports(reports: list[Report], stray: list[tuple[str, int]] | None) -> None:
    from rich.text import Text

    out = console()
    rows = [
        (
            report.shard_id,
            Text(finding.severity, style="red" if finding.severity == "error" else "yellow"),
            finding.rule,
            finding.subject,
            finding.message,
            finding.fix,
        )
        for report in reports
        for finding in report.findings
    ]
    if rows:
        print_table(("shard", "severity", "rule", "what", "finding", "what to do"), rows)
    if stray:
        some = ", ".join(key for key, _ in stray[:3])
        total = size(sum(each for _, each in stray))
        out.print(f"{len(stray)} blobs ({total}) lie in no shard's folder: {some}", markup=False)
    for report in reports:
        errors, notes = len(report.errors), len(report.findings) - len(report.errors)
        verdict = "clean" if report.is_clean else counted(errors, "error")
        if not report.complete:
            verdict = f"could not be checked to the end, {counted(errors, 'error')}"
        found = ("version", report.versions), ("part", report.parts), ("update", report.rows)
        checked = ", ".join(counted(number, thing) for thing, number in found)
        said = f"{verdict}, {counted(notes, 'note')} ({checked}, {size(report.bytes)})"
        out.print(f"{report.shard_id}: {said}")


def found_strays(client: PersistClient) -> list[tuple[str, int]]:
    return list(strays(client))
