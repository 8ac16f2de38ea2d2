"""What clusters should run, by what the catalog says exists.

A source or sink that cannot run yet, as a secret of its is not there, is left out, with the reason.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from tidemark.compute.plan import Plan, collections_of
from tidemark.compute.protocol import Configure, DataflowSpec, IndexSpec
from tidemark.control.catalog import LOG_SHARD, Catalog, Contents, Item
from tidemark.control.connections import resolved
from tidemark.control.secrets import Secrets
from tidemark.errors import Unavailable
from tidemark.storage.kafka.spec import KafkaSink
from tidemark.storage.spec import Definition, GeneratorSource

ShardsOf = Callable[[Plan], dict[str, str]]


def configurations(
    catalog: Catalog,
    definitions: Mapping[str, Definition],
    secrets: Secrets,
    *,
    views: Iterable[Item],
    shards_of: ShardsOf,
) -> tuple[dict[str, Configure], dict[str, str]]:
    """For each cluster, by name; and why what cannot run cannot, by id. `views` are all that there
    are, those of subscriptions too."""
    stalled: dict[str, str] = {}
    found: dict[str, Configure] = {}
    for name in catalog.clusters:
        running = catalog.running_in(name)
        works: list[Definition] = []
        for item in running:
            if item.kind in ("source", "sink") and not item.is_committed:
                try:
                    works.append(definition_of(catalog, item, definitions, secrets))
                except Unavailable as error:
                    stalled[item.runs_as] = f"{type(error).__name__}: {error}"
        found[name] = Configure(
            tuple(_dataflow(item, shards_of) for item in views if item.cluster == name),
            tuple(work for work in works if not isinstance(work, KafkaSink)),
            tuple(work for work in works if isinstance(work, KafkaSink)),
            indexes=tuple(_indexes(catalog.items, running)),
            log=LOG_SHARD,
        )
    return found, stalled


def followed(contents: Contents, cluster: str) -> Configure:
    """What replicas of the cluster keep that write nothing: its views and indexes."""
    items = contents.items
    running = [item for item in items.values() if item.cluster == cluster]

    def shards_of(plan: Plan) -> dict[str, str]:
        return {id_: shard for id_ in collections_of(plan) if (shard := items[id_].shard)}

    views = [item for item in running if item.kind == "materialized-view"]
    return Configure(
        tuple(_dataflow(item, shards_of) for item in views),
        (),
        indexes=tuple(_indexes(items, running)),
        log=LOG_SHARD,
    )


def _dataflow(item: Item, shards_of: ShardsOf) -> DataflowSpec:
    assert item.plan is not None
    assert item.shard is not None
    return DataflowSpec(
        item.id,
        item.plan,
        shards_of(item.plan),
        item.shard,
        item.as_of,
        item.owners,
        item.refresh,
    )


def _indexes(items: Mapping[str, Item], running: Iterable[Item]) -> Iterable[IndexSpec]:
    for item in running:
        if item.kind == "index" and (shard := items[item.depends[0]].shard):
            yield IndexSpec(item.id, shard, item.key)


def definition_of(
    catalog: Catalog, item: Item, definitions: Mapping[str, Definition], secrets: Secrets
) -> Definition:
    """What a source or sink does, with the values of its secrets."""
    definition = definitions.get(item.runs_as)
    if definition is None:
        raise Unavailable(
            f'what {item.kind} "{item.name}" does is not known',
            hint="it was made by a pre-release: drop it and create it again",
        )
    if isinstance(definition, GeneratorSource):
        return definition
    assert item.uses is not None
    targets = {i.id: i.connection for i in catalog.items.values() if i.connection}
    return resolved(definition, item.uses, targets, secrets)
