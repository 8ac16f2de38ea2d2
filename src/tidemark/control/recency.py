"""Real-time recency: a read that has all that there was outside when it was asked.

    ask      Kafka how far the topic of each source underneath the query reaches
    wait     until the source's remap shard has bound that much to a time
    read     at that time, or later

Without it a read is strictly serializable among all that happens here, and a message counts from
the moment that its source has noticed it. Tables and load generators have nothing outside.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, NamedTuple

from tidemark.compute.plan import Plan
from tidemark.control.catalog import Item
from tidemark.control.lineage import underneath
from tidemark.control.wanted import definition_of
from tidemark.errors import SqlError, TidemarkError
from tidemark.persist import PersistClient
from tidemark.storage.kafka.broker import Broker, KafkaBroker, Marks
from tidemark.storage.kafka.spec import KafkaSource
from tidemark.storage.remap import read_offsets

if TYPE_CHECKING:
    from tidemark.control.coordinator import Coordinator


THREADS = 4
"""Of their own: a broker that does not answer keeps one for a while, and no other read shall wait
for that."""


class _Topic(NamedTuple):
    source: KafkaSource
    broker: Broker


class Recency:
    """Asks for one coordinator; connections to brokers are kept for the next time."""

    def __init__(self, coordinator: Coordinator):
        self._coordinator = coordinator
        self._topics: dict[str, _Topic] = {}
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="recency")

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def time(self, plan: Plan, *, seconds: float) -> int:
        """A time that is not in the future, at which the sources underneath have all that their
        topics have now."""
        found = underneath(self._coordinator.catalog, plan).sources
        for id_ in self._topics.keys() - self._coordinator.catalog.items.keys():
            del self._topics[id_]
        topics = {id_: topic for id_, item in found.items() if (topic := self._topic(item))}
        times = [self._of(found[id_], topic, seconds) for id_, topic in topics.items()]
        time = max(await asyncio.gather(*times), default=0)
        database = self._coordinator.database_of(plan)
        if database is not None:
            await self._coordinator.timelines[database].reaches(time)
        return time

    def _topic(self, item: Item) -> _Topic | None:
        coordinator = self._coordinator
        definitions = coordinator.storage.definitions
        source = definition_of(coordinator.catalog, item, definitions, coordinator.secrets)
        if not isinstance(source, KafkaSource):
            return None
        known = self._topics.get(item.id)
        if known is None or known.source != source:
            known = _Topic(source, KafkaBroker(source.connection, source.topic))
            self._topics[item.id] = known
        return known

    async def _of(self, item: Item, topic: _Topic, seconds: float) -> int:
        try:
            async with asyncio.timeout(seconds or None):
                loop = asyncio.get_running_loop()
                marks = await loop.run_in_executor(self._threads, topic.broker.marks)
                return await bound_time(self._coordinator.client, topic.source.remap, marks)
        except TimeoutError:
            raise SqlError(
                f'source "{item.name}" has not taken in within {seconds:g} s all that topic'
                f' "{topic.source.topic}" had when this was asked',
                hint="SET real_time_recency_timeout to wait longer;"
                " mz_internal.mz_source_statuses tells how the source is doing",
                sqlstate="57014",
            ) from None
        except TidemarkError as error:
            raise SqlError(
                f'how far source "{item.name}" should be cannot be told: {error.message}',
                hint="SET real_time_recency = false reads what has been taken in so far",
                sqlstate="08001",
            ) from error


async def bound_time(client: PersistClient, remap: str, marks: dict[int, Marks]) -> int:
    """The newest time that is bound, once all before `marks` is."""
    reader = client.open_reader(remap)

    def covered() -> int | None:
        upper = client.state(remap).upper.time
        if not upper:
            return None
        offsets = read_offsets(reader, upper - 1)
        reached = all(offsets.get(place, 0) >= mark.high for place, mark in marks.items())
        return upper - 1 if reached else None

    time = await client.watch.wait_for_async(remap, covered)
    if time is None:
        raise TidemarkError("the server is stopping")
    return time
