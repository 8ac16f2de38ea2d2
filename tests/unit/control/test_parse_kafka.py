"""CREATE SECRET, CREATE CONNECTION and CREATE SOURCE ... FROM KAFKA: text into statements."""

from __future__ import annotations

from pathlib import Path

import pytest

from tidemark.control import statements as s
from tidemark.control.connections import KafkaTarget, RegistryTarget, Uses, resolved
from tidemark.control.parse import parse
from tidemark.control.secrets import Secrets, key_file
from tidemark.errors import InvalidUsage, SqlError, Unavailable
from tidemark.storage.kafka.spec import Format, Include, KafkaSource
from tidemark.types import BIGINT, BYTEA, JSONB, TEXT, Column, numeric


def source(rest: str) -> s.CreateKafkaSource:
    statement = parse(f"CREATE SOURCE s FROM KAFKA CONNECTION k (TOPIC 't') {rest}")
    assert isinstance(statement, s.CreateKafkaSource)
    return statement


# Secrets -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", ["'hunter2'", "$$hunter2$$", "E'hunter2'"])
def test_a_secret_is_not_in_its_statement(value: str) -> None:
    statement = parse(f"create secret if not exists Pw as {value};")
    assert isinstance(statement, s.CreateSecret)
    assert (statement.name, statement.value) == (("pw",), "hunter2")
    assert statement.sql == "create secret if not exists Pw as '***'"
    assert "hunter2" not in repr(statement)


@pytest.mark.parametrize(
    "sql",
    [
        "CREATE SECRET p 'hunter2'",
        "CREATE SECRET p AS 'hunter2' 'hunter2'",
        "CREATE SECRET p AS hunter2",
        "CREATE SECRET 'hunter2'",
        "CREATE SECRET p AS 'hunter2",
        "CREATE SECRET p AS E'\\x41hunter2'",
        "ALTER SECRET p AS 'hunter2' CASCADE",
        "ALTER SECRET 'hunter2'",
    ],
)
def test_an_error_does_not_repeat_a_secret(sql: str) -> None:
    with pytest.raises(SqlError) as caught:
        parse(sql)
    assert "hunter2" not in str(caught.value)


def test_secrets_are_private_files(tmp_path: Path) -> None:
    secrets = Secrets(tmp_path / "secrets", tmp_path / "elsewhere" / "key")
    for name in ("p", "../p", "a/b", ".", "P"):
        secrets.write(name, f"value of {name}")
    for name in ("p", "../p", "a/b", ".", "P"):
        assert secrets.read(name) == f"value of {name}"
    files = list((tmp_path / "secrets").iterdir())
    assert len(files) == 5
    assert {file.stat().st_mode & 0o777 for file in files} == {0o600}
    assert (tmp_path / "secrets").stat().st_mode & 0o777 == 0o700
    secrets.write("p", "another")
    assert secrets.read("p") == "another"
    secrets.delete("p")
    secrets.delete("p")
    with pytest.raises(Unavailable, match="ALTER SECRET p AS"):
        secrets.read("p")


def test_secrets_are_nothing_without_their_key(tmp_path: Path) -> None:
    folder, key = tmp_path / "data" / "secrets", tmp_path / "key"
    secrets = Secrets(folder, key)
    secrets.write("p", "hunter2")
    assert key.stat().st_mode & 0o777 == 0o600
    assert b"hunter2" not in b"".join(path.read_bytes() for path in folder.iterdir())
    assert Secrets(folder, key).read("p") == "hunter2"
    kept = key.rename(tmp_path / "kept")
    with pytest.raises(Unavailable, match=r"key of the secrets.*No such file.*bring it back"):
        secrets.read("p")
    key.write_text("no key")
    with pytest.raises(Unavailable, match="it is no key"):
        secrets.write("p", "hunter3")
    key.unlink()
    secrets.write("q", "hunter4")  # With a new key, by which the others mean nothing.
    with pytest.raises(Unavailable, match=r'"p" cannot be read .*not encrypted with'):
        secrets.read("p")
    kept.replace(key)
    assert secrets.read("p") == "hunter2"


def test_where_the_key_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    data = tmp_path / "data"
    assert key_file(None, data) == tmp_path / "config" / "tidemark" / "secrets.key"
    assert key_file(tmp_path / "key", data) == tmp_path / "key"
    with pytest.raises(InvalidUsage, match="inside the data folder"):
        key_file(data / "secrets" / "key", data)


def test_values_of_secrets_are_put_in_at_the_last_moment(tmp_path: Path) -> None:
    secrets = Secrets(tmp_path, tmp_path / "key")
    secrets.write("p", "hunter2")
    kafka = KafkaTarget("h:1", {"sasl.username": "u"}, {"sasl.password": "p"})
    registry = RegistryTarget("http://r", "u", "p")
    value = Format("avro", (Column("a", TEXT),), schema="{}", registry=registry.without_values())
    stored = KafkaSource("s", kafka.without_values(), "t", value, "s-remap", "s")
    found = resolved(stored, Uses("u1", value="u2"), {"u1": kafka, "u2": registry}, secrets)
    assert found.connection.secrets == {"sasl.password": "hunter2"}
    assert found.value.registry is not None
    assert found.value.registry.password == "hunter2"
    assert "hunter2" not in repr(found)
    assert "hunter2" not in repr(stored)


# Connections -------------------------------------------------------------------------------------


def test_connections() -> None:
    kafka = parse(
        "CREATE CONNECTION k TO KAFKA (BROKERS ('a:1', 'b:2'), SECURITY PROTOCOL = 'SASL_SSL',"
        " SASL MECHANISMS 'PLAIN', SASL USERNAME = 'u', SASL PASSWORD = SECRET p,"
        " SSL CERTIFICATE AUTHORITY = 'ca', SSL CERTIFICATE 'c', SSL KEY = SECRET q)"
    )
    assert isinstance(kafka, s.CreateConnection)
    assert kafka.kind == "kafka"
    assert dict(kafka.options) == {
        "brokers": "a:1,b:2",
        "security protocol": "SASL_SSL",
        "sasl mechanisms": "PLAIN",
        "sasl username": "u",
        "sasl password": s.SecretNamed(("p",)),
        "ssl certificate authority": "ca",
        "ssl certificate": "c",
        "ssl key": s.SecretNamed(("q",)),
    }
    registry = parse("CREATE CONNECTION r TO CONFLUENT SCHEMA REGISTRY (URL 'http://r:1')")
    assert isinstance(registry, s.CreateConnection)
    assert (registry.kind, registry.options) == (
        "confluent schema registry",
        (("url", "http://r:1"),),
    )


# Sources -----------------------------------------------------------------------------------------


FORMATS = {
    "JSON": s.Format("json"),
    "JSON (id bigint, price numeric(10, 2), doc jsonb, raw bytea)": s.Format(
        "json",
        (
            Column("id", BIGINT),
            Column("price", numeric(10, 2)),
            Column("doc", JSONB),
            Column("raw", BYTEA),
        ),
    ),
    "TEXT": s.Format("text"),
    "BYTES": s.Format("bytes"),
    "CSV WITH 2 COLUMNS": s.Format("csv", (Column("column1", TEXT), Column("column2", TEXT))),
    "CSV WITH (a, b) DELIMITED BY '|'": s.Format(
        "csv", (Column("a", TEXT), Column("b", TEXT)), delimiter="|"
    ),
    "AVRO USING SCHEMA '{}'": s.Format("avro", schema="{}"),
    "AVRO USING CONFLUENT SCHEMA REGISTRY CONNECTION r": s.Format("avro", registry=("r",)),
    "PROTOBUF MESSAGE 'p.M' USING SCHEMA '\\x00'": s.Format(
        "protobuf", schema="\\x00", message="p.M"
    ),
}


@pytest.mark.parametrize("text", FORMATS)
def test_formats(text: str) -> None:
    alone = source(f"FORMAT {text} ENVELOPE NONE")
    assert (alone.key, alone.value) == (None, FORMATS[text])
    assert alone.both == (FORMATS[text].registry is not None)
    both = source(f"KEY FORMAT {text} VALUE FORMAT TEXT WITH (TIMESTAMP INTERVAL '2s')")
    assert (both.key, both.value, both.both) == (FORMATS[text], s.Format("text"), False)
    assert both.with_options == (("timestamp interval", "2s"),)


def test_everything_at_once() -> None:
    found = parse(
        "CREATE SOURCE IF NOT EXISTS a.s IN CLUSTER c FROM KAFKA CONNECTION k"
        " (TOPIC = 't', START OFFSET = (0, 10)) KEY FORMAT TEXT VALUE FORMAT BYTES"
        " INCLUDE KEY AS k, PARTITION, OFFSET AS o, TIMESTAMP, HEADERS, HEADER 'x' AS h,"
        " HEADER 'y' AS y BYTES ENVELOPE UPSERT (VALUE DECODING ERRORS = (INLINE AS e))"
        " EXPOSE PROGRESS AS p"
    )
    assert isinstance(found, s.CreateKafkaSource)
    assert (found.name, found.connection, found.cluster) == (("a", "s"), ("k",), "c")
    assert (found.topic, found.start_offsets, found.start_timestamp) == ("t", (0, 10), None)
    assert found.include == (
        Include("key", "k"),
        Include("partition", "partition"),
        Include("offset", "o"),
        Include("timestamp", "timestamp"),
        Include("headers", "headers"),
        Include("header", "h", "x"),
        Include("header", "y", "y", as_bytes=True),
    )
    assert (found.key_name, found.envelope, found.inline_errors) == ("k", "upsert", "e")
    assert (found.progress, found.if_not_exists) == (("p",), True)


def test_small_variations() -> None:
    assert source("FORMAT TEXT").envelope == "none"
    assert source("FORMAT TEXT ENVELOPE DEBEZIUM").envelope == "debezium"
    inline = source("FORMAT TEXT ENVELOPE UPSERT (VALUE DECODING ERRORS = INLINE)")
    assert inline.inline_errors == "error"
    start = parse(
        "CREATE SOURCE s FROM KAFKA CONNECTION k (TOPIC 't', START TIMESTAMP -5000) FORMAT TEXT"
    )
    assert isinstance(start, s.CreateKafkaSource)
    assert start.start_timestamp == -5000


def test_sinks() -> None:
    found = parse(
        "CREATE SINK IF NOT EXISTS k IN CLUSTER c FROM v INTO KAFKA CONNECTION b (TOPIC = 't')"
        " KEY (x, y) NOT ENFORCED FORMAT JSON ENVELOPE DEBEZIUM"
    )
    assert isinstance(found, s.CreateSink)
    assert (found.name, found.relation, found.connection) == (("k",), ("v",), ("b",))
    assert (found.topic, found.key, found.envelope) == ("t", ("x", "y"), "debezium")
    assert (found.cluster, found.if_not_exists) == ("c", True)


REFUSED = {
    "CREATE SINK k FROM v INTO KAFKA CONNECTION b (TOPIC 't') KEY (x) FORMAT TEXT"
    " ENVELOPE UPSERT": "writes JSON",
    "CREATE SINK k FROM v INTO KAFKA CONNECTION b (TOPIC 't') FORMAT JSON": "needs a key",
    "CREATE CONNECTION k TO POSTGRES (HOST 'h')": "only connections TO KAFKA",
    "CREATE CONNECTION k TO KAFKA (NOSUCH 'h')": "option NOSUCH is not supported",
    "CREATE CONNECTION k TO KAFKA (BROKER 'a', BROKER 'b')": "given more than once",
    "CREATE CONNECTION k TO KAFKA (BROKER 5)": 'syntax error at or near "5"',
    "CREATE SOURCE s FROM KAFKA CONNECTION k (START OFFSET 1) FORMAT TEXT": "needs a topic",
    "CREATE SOURCE s FROM KAFKA CONNECTION k (TOPIC 't')": "needs a format",
    "CREATE SOURCE s FROM KAFKA CONNECTION k (TOPIC 't', START OFFSET 1, START TIMESTAMP 1)"
    " FORMAT TEXT": "exclude each other",
    "CREATE SOURCE s FROM KAFKA CONNECTION k (TOPIC 't') FORMAT CSV WITH HEADER": "CSV WITH HEADER",
    "CREATE SOURCE s FROM KAFKA CONNECTION k (TOPIC 't') FORMAT CSV WITH 0 COLUMNS": "1 to 1600",
    "CREATE SOURCE s FROM KAFKA CONNECTION k (TOPIC 't') FORMAT CSV WITH 1 COLUMNS DELIMITED BY"
    " ';;'": "one character",
    "CREATE SOURCE s FROM KAFKA CONNECTION k (TOPIC 't') KEY FORMAT TEXT": "end of input",
    "CREATE SOURCE s FROM KAFKA CONNECTION k (TOPIC 't') FORMAT XML": 'near "XML"',
    "CREATE SOURCE s FROM KAFKA CONNECTION k (TOPIC 't') FORMAT TEXT ENVELOPE MAYBE": "MAYBE",
}


@pytest.mark.parametrize("sql", REFUSED)
def test_refusals(sql: str) -> None:
    with pytest.raises(SqlError) as caught:
        parse(sql)
    assert REFUSED[sql] in caught.value.message
