"""Catalogs of earlier versions are read, those of later ones are refused."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tidemark.control import migrations
from tidemark.control.catalog import SHARD, Catalog, read_items
from tidemark.control.hierarchy import RegionItem
from tidemark.errors import InvalidUsage
from tidemark.persist import MemBlob, MemConsensus, PersistClient
from tidemark.storage.definitions import Definitions, read_definitions

BEFORE = {
    "last_id": "5",
    "u1": '{"id":"u1","name":"orders","kind":"table","sql":"CREATE TABLE orders (id int)",'
    '"columns":[{"name":"id","type":{"name":"integer","precision":null,"scale":null,'
    '"element":null},"nullable":true}],"shard":"u1"}',
    "u2": '{"id":"u2","name":"p","kind":"secret","sql":"CREATE SECRET p AS \'...\'"}',
    "u3": '{"id":"u3","name":"k","kind":"connection","sql":"CREATE CONNECTION k TO KAFKA ...",'
    '"depends":["u2"],"connection":{"type":"kafka","brokers":"a:1",'
    '"secrets":{"sasl.password":"p"}}}',
    "u4": '{"id":"u4","name":"by_id","kind":"index","sql":"CREATE INDEX by_id ON orders (id)",'
    '"key":["id"],"depends":["u1"]}',
    "cluster-u5": '{"id":"u5","name":"other","replicas":[{"name":"r1"}]}',
    "verdicts-u1": "[]",
}
"""Rows as they were written while there was one database and one schema."""


@pytest.fixture
def client() -> Iterator[PersistClient]:
    opened = PersistClient(MemBlob(), MemConsensus())
    yield opened
    opened.close()


def written(client: PersistClient, rows: dict[str, str]) -> None:
    Definitions(client, SHARD).change(rows)


def test_what_was_written_before_is_in_public_of_tidemark(client: PersistClient):
    written(client, BEFORE)
    assert read_items(client)["u1"].full_name == ("tidemark", "public", "orders")
    assert migrations.VERSION not in read_definitions(client, SHARD), "reading changes nothing"

    catalog = Catalog(client)

    assert {item.full_name for item in catalog.items.values()} == {
        ("tidemark", "public", name) for name in ("orders", "p", "k", "by_id")
    }
    assert catalog.named("orders") == catalog.items["u1"]
    assert catalog.items["u2"].shown == "p", "its value is kept under that name"
    assert [(d.id, d.log) for d in catalog.databases.values()] == [("s1", "txns")]
    assert list(catalog.schemas) == [("tidemark", "public")]
    assert list(catalog.clusters) == ["quickstart", "other"]
    assert catalog.next_ids() == ["u6"]


def test_a_migrated_catalog_stays_as_it_is(client: PersistClient):
    written(client, BEFORE)
    Catalog(client)
    rows = read_definitions(client, SHARD)
    assert rows[migrations.VERSION] == str(len(migrations.MIGRATIONS))
    Catalog(client)
    assert read_definitions(client, SHARD) == rows


def test_what_another_version_has_dropped_does_not_come_back(client: PersistClient):
    catalog = Catalog(client)
    catalog.remove_schema(catalog.schemas["tidemark", "public"])
    assert not Catalog(client).schemas


def test_a_newer_catalog_is_refused_and_its_leader_goes_on(client: PersistClient):
    leader = Catalog(client)
    newer = len(migrations.MIGRATIONS) + 1
    leader._definitions.change({migrations.VERSION: str(newer)})
    with pytest.raises(InvalidUsage, match=f"newer Tidemark: it has version {newer}"):
        Catalog(client)
    with pytest.raises(InvalidUsage, match="newer Tidemark"):
        read_items(client)
    assert leader.next_ids() == ["u1"]  # Nobody has taken the lead.


def test_data_belong_to_one_region_for_ever(client: PersistClient):
    written(client, BEFORE)
    assert Catalog(client).region(None, "eu") == RegionItem("tidemark", "eu")
    assert Catalog(client).region() == RegionItem("tidemark", "eu")
    assert Catalog(client).region("tidemark", "eu") == RegionItem("tidemark", "eu")
    with pytest.raises(InvalidUsage, match='belong to region "eu", not "us"'):
        Catalog(client).region(None, "us")
    with pytest.raises(InvalidUsage, match='belong to account "tidemark", not "other"'):
        Catalog(client).region("other", None)
