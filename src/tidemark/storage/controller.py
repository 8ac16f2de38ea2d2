"""The controller: what STORAGE is told, and what it answers.

    create_source, drop_source   data comes in, into the collections that the source names
    create_sink, drop_sink       a collection goes out
    subscribe                    a collection as it was at a time, then every change
    write_back                   updates of a collection from whoever computes them
    allow_compaction             history before a time may go
    frontiers, statistics        how far collections are, and what sources have done

What is defined is durable, and `definitions` is what clusters run; a controller that starts again
finds the same, so nobody who runs it notices. Collections go by the ids of their shards.

A *rendition* is one incarnation of who writes a collection back. STORAGE does not trust it to be
deterministic, so two of them must not mix: the first append of a newer one shuts out the older
ones, in the same commit, for good. Who subscribes to a rendition is told when there is a newer one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

import msgspec
import pyarrow as pa

from tidemark.errors import Fenced, InvalidUsage
from tidemark.frontier import Frontier
from tidemark.persist import CRITICAL, Appended, PersistClient, UpperMismatch, WriteHandle
from tidemark.persist.read import Updates
from tidemark.persist.updates import row_names
from tidemark.storage.definitions import Definitions
from tidemark.storage.kafka.spec import KafkaSink, sink_holder
from tidemark.storage.source import Statistics
from tidemark.storage.spec import Definition, Source, written_by

_DEFINITION: msgspec.json.Decoder[Definition] = msgspec.json.Decoder(Definition)


class Frontiers(NamedTuple):
    since: Frontier
    upper: Frontier


class Storage:
    """The one controller of a region: a second one takes over from the first."""

    def __init__(self, client: PersistClient, shard_id: str):
        """`shard_id` is where the definitions are kept."""
        self._client = client
        self._definitions = Definitions(client, shard_id)
        self._statistics: dict[str, Statistics] = {}
        self._before: dict[str, Statistics] = {}
        self._writers: dict[tuple[str, int], WriteHandle] = {}

    @property
    def definitions(self) -> Mapping[str, Definition]:
        """All that is to run, by id."""
        rows = self._definitions.rows
        return {id_: _DEFINITION.decode(rows[id_]) for id_ in sorted(rows)}

    # What comes in and goes out.

    def create_source(self, source: Source) -> None:
        """Its collections can be read from the beginning on, until compaction is allowed."""
        for shard in written_by(source):
            self.allow_compaction(shard, Frontier.MIN)
        self._define(source)

    def drop_source(self, id_: str) -> None:
        """Forget the source, and its collections with all they hold."""
        self._drop(id_)

    def create_sink(self, sink: KafkaSink) -> None:
        """From `sink.as_of` on, which must be held for it (`sink_holder`)."""
        self._define(sink)

    def drop_sink(self, id_: str) -> None:
        """Forget the sink; what it has sent stays."""
        self._drop(id_)

    def _define(self, definition: Definition) -> None:
        text = msgspec.json.encode(definition).decode()
        known = self._definitions.rows.get(definition.id)
        if known not in (None, text):
            raise InvalidUsage(f"{definition.id} is defined already, as something else")
        if known is None:
            self._definitions.change({definition.id: text})

    def _drop(self, id_: str) -> None:
        found = self.definitions.get(id_)
        if found is None:
            return
        # The definition goes last: what is left of a crash is dropped again.
        for shard in written_by(found):
            self._client.finalize(shard)
        if isinstance(found, KafkaSink) and not self._client.state(found.shard).is_tombstone:
            self._client.open_critical_since(found.shard, sink_holder(id_)).release()
        self._definitions.change({id_: None})
        self._statistics.pop(id_, None)
        self._before.pop(id_, None)

    # Collections.

    def subscribe(
        self,
        id_: str,
        as_of: int,
        *,
        rendition: int | None = None,
        timeout: float | None = None,
    ) -> Iterator[Updates]:
        """All rows at `as_of`, then every change; an empty step after `timeout` seconds of none.

        With a `rendition`, until a newer one has written.
        """
        for step in self._client.open_reader(id_).subscribe(as_of, timeout=timeout):
            current = self._client.state(id_).rendition
            if rendition is not None and current > rendition:
                raise Fenced(
                    f"collection {id_} is written by rendition {current} now, "
                    f"not by {rendition} any more",
                    hint="subscribe to the newer one",
                )
            yield step

    def write_back(
        self, id_: str, updates: pa.Table, *, lower: Frontier, upper: Frontier, rendition: int
    ) -> Appended | UpperMismatch:
        """Append updates in [lower, upper) if the collection's upper is `lower`; `Fenced` if a
        newer rendition has written."""
        writer = self._writers.get((id_, rendition))
        if writer is None:
            names = row_names(updates.schema)
            rows = pa.schema([updates.schema.field(name) for name in names])
            state = self._client.state(id_)
            if state.follows or state.lead is not None:
                raise InvalidUsage(f"collection {id_} is a table: only commits write to it")
            if any(id_ in written_by(known) for known in self.definitions.values()):
                raise InvalidUsage(f"collection {id_} is a source: only its ingestion writes to it")
            writer = self._client.open_writer(id_, schema=rows, key=state.key, rendition=rendition)
            self._writers[id_, rendition] = writer
        return writer.compare_and_append(updates, lower=lower, upper=upper)

    def allow_compaction(self, id_: str, since: Frontier) -> None:
        """Nobody who reads through control needs history before `since`."""
        self._client.open_critical_since(id_, CRITICAL).downgrade(since)

    def frontiers(self, *ids: str) -> dict[str, Frontiers]:
        states = {id_: self._client.state(id_) for id_ in ids}
        return {id_: Frontiers(state.since, state.upper) for id_, state in states.items()}

    # Statistics.

    def heard(self, id_: str, statistics: Statistics) -> None:
        """What a cluster says that a source has done since it was started there."""
        last = self._statistics.get(id_)
        if last is not None and statistics.started_ms != last.started_ms:
            self._before[id_] = self.statistics(id_)
        self._statistics[id_] = statistics

    def statistics(self, id_: str) -> Statistics:
        """What a source has done as far as this controller has heard, and how far it is."""
        last = self._statistics.get(id_) or Statistics()
        return last.after(self._before.get(id_) or Statistics())
