"""Kafka sources as a user has them: made in SQL, fed by producers, read through the server."""

from __future__ import annotations

import base64
import contextlib
import io
import json
import os
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import fastavro
import psycopg
import pytest
from confluent_kafka import Producer
from google.protobuf import descriptor_pb2
from serving import Serving, eventually

from services import KafkaServer
from tidemark.persist import PersistClient

PASSWORD = "tidemark-secret"


@pytest.fixture
def topic(kafka: KafkaServer) -> str:
    name = f"sql-{uuid4().hex[:8]}"
    kafka.create_topic(name, partitions=2, retention_ms="-1")  # Some messages are from long ago.
    return name


@pytest.fixture
def broker(kafka: KafkaServer, connection: psycopg.Connection) -> Iterator[str]:
    """A connection to the shared broker; all that uses it goes with it."""
    connection.execute(f"CREATE CONNECTION ka TO KAFKA (BROKER '{kafka.bootstrap}')")
    yield "ka"
    connection.execute("DROP CONNECTION ka CASCADE")


class Feed:
    """Sends to one topic; a dict goes as JSON."""

    def __init__(self, kafka: KafkaServer, topic: str):
        self._producer = Producer({**kafka.client_settings(), "log_level": 0})
        self._topic = topic

    def __call__(self, key: object, value: object, **more: object) -> None:
        coded = [json.dumps(x).encode() if isinstance(x, dict) else x for x in (key, value)]
        self._producer.produce(self._topic, key=coded[0], value=coded[1], **more)  # type: ignore[arg-type]
        assert self._producer.flush(30) == 0


def becomes(connection: psycopg.Connection, query: str, expected: list) -> None:
    """Until the query returns that; an error row counts as not yet."""
    last: list = []

    def look() -> bool:
        try:
            last[:] = connection.execute(query).fetchall()  # type: ignore[arg-type]
        except (psycopg.DataError, psycopg.OperationalError) as error:
            last[:] = [error]
        return last == expected

    try:
        eventually(query, look)
    except AssertionError:
        raise AssertionError(f"{query}: {last}, expected {expected}") from None


def fails(connection: psycopg.Connection, query: str, text: str) -> None:
    def look() -> bool:
        try:
            connection.execute(query)  # type: ignore[arg-type]
        except psycopg.Error as error:
            return text in str(error)
        return False

    eventually(f"{query} fails with {text}", look)


def texts_below(folder: Path) -> Iterator[str]:
    """What is in the files there now; the server goes on, and takes some away meanwhile."""
    for where, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(FileNotFoundError):
                path = Path(where, name)
                if path.is_file():
                    yield path.read_bytes().decode(errors="replace")


def status(connection: psycopg.Connection, source: str) -> tuple:
    found = connection.execute(
        "SELECT type, status, error FROM mz_internal.mz_source_statuses WHERE name = %s", (source,)
    ).fetchone()
    assert found is not None
    return found


def test_a_source_and_a_view_of_it_follow_the_topic(
    connection: psycopg.Connection, kafka: KafkaServer, broker: str, topic: str
) -> None:
    send = Feed(kafka, topic)
    for i in range(10):
        send({"id": i}, {"note": f"n{i % 2}"})
    connection.execute(
        f"CREATE SOURCE ks FROM KAFKA CONNECTION {broker} (TOPIC '{topic}')"
        " KEY FORMAT JSON (id bigint) VALUE FORMAT JSON (note text) ENVELOPE UPSERT"
        " EXPOSE PROGRESS AS ks_offsets WITH (TIMESTAMP INTERVAL '200ms')"
    )
    connection.execute(
        "CREATE MATERIALIZED VIEW ks_notes AS SELECT note, count(*) AS n FROM ks GROUP BY note"
    )
    notes = "SELECT note, n FROM ks_notes ORDER BY note"
    becomes(connection, notes, [("n0", 5), ("n1", 5)])
    send({"id": 0}, {"note": "n1"})
    send({"id": 2}, None)
    becomes(connection, notes, [("n0", 3), ("n1", 6)])

    # What is wrong with a message is an error row, until its key has a better one.
    send({"id": 4}, b"{bad")
    for relation in ("ks", "ks_notes"):
        fails(connection, f"SELECT * FROM {relation}", "Failed to decode JSON")
    # The source goes on; its status says what its readers are told.
    kind, doing, error = status(connection, "ks")
    assert (kind, doing) == ("kafka", "running")
    assert "Failed to decode JSON" in error
    in_error = (
        "SELECT rows, error_rows, read_error LIKE '%%Failed to decode JSON%%', error_updates > 0"
        " FROM mz_internal.mz_storage_shards JOIN mz_objects ON id = object_id"
        " WHERE name IN ('ks', 'ks_notes') AND is_collection ORDER BY name"
    )
    becomes(connection, in_error, [(8, 1, True, True), (2, 1, True, True)])
    send({"id": 4}, {"note": "mended"})
    becomes(connection, notes, [("mended", 1), ("n0", 2), ("n1", 6)])
    # Its history still tells of the error, but nothing is wrong now.
    becomes(connection, in_error, [(9, 0, None, True), (3, 0, None, True)])

    becomes(connection, "SELECT sum(offset) FROM ks_offsets", [(14,)])
    statistics = (
        "SELECT messages_received, bytes_received > 0, snapshot_committed, offset_known,"
        " offset_committed, updates_staged = updates_committed, rehydration_latency > 0"
        " FROM mz_internal.mz_source_statistics WHERE name = 'ks'"
    )
    becomes(connection, statistics, [(14, True, True, 14, 14, True, True)])
    shown = connection.execute("SHOW SOURCES").fetchall()
    assert ("ks", "kafka", "quickstart", "running", None) in shown
    assert ("ks_offsets", "progress", "quickstart", "running", None) in shown


def test_real_time_recency(
    server: Serving, connection: psycopg.Connection, kafka: KafkaServer, broker: str, topic: str
) -> None:
    """A read has every message that was there when it was asked, whether noticed or not."""
    send = Feed(kafka, topic)
    connection.execute(
        f"CREATE SOURCE kr FROM KAFKA CONNECTION {broker} (TOPIC '{topic}')"
        " KEY FORMAT JSON (id bigint) VALUE FORMAT JSON (note text) ENVELOPE UPSERT"
    )
    connection.execute("CREATE MATERIALIZED VIEW kr_n AS SELECT count(*) AS n FROM kr")
    connection.execute("CREATE TABLE kr_t (n bigint)")
    with server.connect() as recent:
        recent.execute("SET real_time_recency = true")
        recent.execute("SET real_time_recency_timeout = '2min'")
        for i in range(1, 6):
            send({"id": i}, {"note": "n"})
            relation = "kr" if i % 2 else "kr_n"
            asked = f"SELECT {'count(*)' if i % 2 else 'n'} FROM {relation}"
            assert recent.execute(asked).fetchone() == (i,)  # type: ignore[arg-type]
            # And no strict read afterwards is older.
            assert connection.execute("SELECT n FROM kr_n").fetchone() == (i,)
        send({"id": 6}, {"note": "n"})
        recent.execute("INSERT INTO kr_t SELECT n FROM kr_n")
        assert recent.execute("SELECT n FROM kr_t").fetchone() == (6,)
        recent.execute("BEGIN")
        send({"id": 7}, {"note": "n"})
        assert recent.execute("SELECT count(*) FROM kr").fetchone() == (7,)
        send({"id": 8}, {"note": "n"})
        assert recent.execute("SELECT n FROM kr_n").fetchone() == (7,), "at one time"
        recent.execute("COMMIT")

        recent.execute("SET real_time_recency_timeout = '1ms'")
        with pytest.raises(psycopg.errors.QueryCanceled, match='source "kr" has not taken in'):
            recent.execute("SELECT n FROM kr_n")
        assert recent.execute("SELECT n FROM kr_t").fetchone() == (6,), "needs no source"
        recent.execute("SET transaction_isolation = 'serializable'")
        with pytest.raises(psycopg.Error, match="strict serializable"):
            recent.execute("SELECT n FROM kr_n")
    connection.execute("DROP TABLE kr_t")


def test_what_is_dropped_is_gone(
    server: Serving,
    connection: psycopg.Connection,
    kafka: KafkaServer,
    broker: str,
    topic: str,
) -> None:
    Feed(kafka, topic)("a", "1")
    connection.execute(
        f"CREATE SOURCE kd FROM KAFKA CONNECTION {broker} (TOPIC '{topic}') FORMAT TEXT"
    )
    becomes(connection, "SELECT text FROM kd", [("1",)])
    (id_,) = connection.execute("SELECT id FROM mz_objects WHERE name = 'kd'").fetchone() or ("",)
    with pytest.raises(psycopg.errors.DependentObjectsStillExist, match="kd, kd_progress"):
        connection.execute(f"DROP CONNECTION {broker}")
    with pytest.raises(psycopg.errors.DependentObjectsStillExist, match="belongs to source"):
        connection.execute("DROP SOURCE kd_progress")
    connection.execute("DROP SOURCE kd")
    with pytest.raises(psycopg.errors.UndefinedTable):
        connection.execute("SELECT * FROM kd_progress")
    client = PersistClient.open(
        blob=f"file://{server.data / 'blob'}", consensus=f"sqlite://{server.data / 'consensus.db'}"
    )
    try:
        assert client.state(id_).is_tombstone
        assert client.state(f"{id_}-remap").is_tombstone
    finally:
        client.close()


def test_formats_and_included_columns(
    connection: psycopg.Connection, kafka: KafkaServer, broker: str, topic: str
) -> None:
    schema = json.dumps({"type": "record", "name": "r", "fields": [{"name": "n", "type": "long"}]})
    field = descriptor_pb2.FieldDescriptorProto(
        name="n", number=1, type="TYPE_INT64", label="LABEL_OPTIONAL"
    )
    file = descriptor_pb2.FileDescriptorProto(name="m.proto", package="p", syntax="proto3")
    file.message_type.add(name="M").field.append(field)
    descriptors = descriptor_pb2.FileDescriptorSet(file=[file]).SerializeToString()
    avro = io.BytesIO()
    fastavro.schemaless_writer(avro, json.loads(schema), {"n": 7})
    in_base64 = base64.b64encode(descriptors).decode()
    cases = {
        "FORMAT TEXT": (b"caf\xc3\xa9", "text", "café"),
        "FORMAT BYTES": (b"\x00\xff", "data", b"\x00\xff"),
        "FORMAT JSON": (b'{"b": 1, "a": [1.50]}', "data", {"a": [1.5], "b": 1}),
        "FORMAT JSON (a int, b text)": (b'{"a": 1}', "a", 1),
        "FORMAT CSV WITH 2 COLUMNS": (b'1,"a,b"', "column2", "a,b"),
        "FORMAT CSV WITH (x, y) DELIMITED BY ';'": (b"1;2", "y", "2"),
        f"FORMAT AVRO USING SCHEMA '{schema}'": (avro.getvalue(), "n", 7),
        f"FORMAT PROTOBUF MESSAGE 'p.M' USING SCHEMA '{in_base64}'": (b"\x08\x05", "n", 5),
    }
    for at, (format_, (message, _, _)) in enumerate(cases.items()):
        own = f"{topic}-{at}"
        kafka.create_topic(own)
        Feed(kafka, own)(b"k", message)
        connection.execute(
            f"CREATE SOURCE kf{at} FROM KAFKA CONNECTION {broker} (TOPIC '{own}') {format_}"
        )
    connection.execute(
        f"CREATE SOURCE kf_hex FROM KAFKA CONNECTION {broker} (TOPIC '{topic}')"
        f" FORMAT PROTOBUF MESSAGE 'p.M' USING SCHEMA '\\x{descriptors.hex()}'"
    )
    for at, (_, column, expected) in enumerate(cases.values()):
        becomes(connection, f"SELECT {column} FROM kf{at}", [(expected,)])

    own = f"{topic}-included"
    kafka.create_topic(own, retention_ms="-1")
    headers = [("h", b"one"), ("h", b"two"), ("b", b"\xff")]
    Feed(kafka, own)(b"k", b"v", headers=headers, timestamp=1_700_000_000_123)
    connection.execute(
        f"CREATE SOURCE kf_all FROM KAFKA CONNECTION {broker} (TOPIC '{own}')"
        " KEY FORMAT TEXT VALUE FORMAT TEXT INCLUDE KEY AS k, PARTITION, OFFSET AS o,"
        " TIMESTAMP AS ts, HEADERS AS hs, HEADER 'h' AS h, HEADER 'b' AS b BYTES"
    )
    becomes(
        connection,
        "SELECT k, text, partition, o, h, b FROM kf_all",
        [("k", "v", 0, 0, "two", b"\xff")],
    )
    found = connection.execute("SELECT ts, hs FROM kf_all").fetchone()
    assert found is not None
    assert found[0].isoformat() == "2023-11-14T22:13:20.123000"
    assert found[1][2] == {"key": "b", "value": "ff"}


def test_avro_of_a_registry_and_debezium(
    connection: psycopg.Connection, kafka: KafkaServer, registry: str, broker: str, topic: str
) -> None:
    from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
    from confluent_kafka.schema_registry.avro import AvroSerializer
    from confluent_kafka.serialization import MessageField, SerializationContext

    client = SchemaRegistryClient({"url": registry})
    row = {
        "type": "record",
        "name": "row",
        "fields": [{"name": "id", "type": "long"}, {"name": "note", "type": ["null", "string"]}],
    }
    event = {
        "type": "record",
        "name": "event",
        "fields": [
            {"name": "before", "type": ["null", row]},
            {"name": "after", "type": ["null", "row"]},
        ],
    }
    key = {"type": "record", "name": "key", "fields": [{"name": "id", "type": "long"}]}
    connection.execute(f"CREATE CONNECTION kr TO CONFLUENT SCHEMA REGISTRY (URL '{registry}')")
    create = (
        f"CREATE SOURCE kz FROM KAFKA CONNECTION {broker} (TOPIC '{topic}')"
        " FORMAT AVRO USING CONFLUENT SCHEMA REGISTRY CONNECTION kr ENVELOPE DEBEZIUM"
    )
    try:
        with pytest.raises(psycopg.Error, match=f"{topic}-key"):
            connection.execute(create)
        codes = []
        for part, schema in (("key", key), ("value", event)):
            text = json.dumps(schema)
            client.register_schema(f"{topic}-{part}", Schema(text, "AVRO"))
            codes.append(AvroSerializer(client, text))
        connection.execute(create)
        assert connection.execute("SHOW COLUMNS FROM kz").fetchall() == [
            ("id", "t", "bigint"),
            ("note", "t", "text"),
        ]
        fields = (MessageField.KEY, MessageField.VALUE)
        send = Feed(kafka, topic)

        def change(id_: int, after: dict | None) -> None:
            values = ({"id": id_}, {"before": None, "after": after})
            send(
                *(
                    code(value, SerializationContext(topic, field))
                    for code, value, field in zip(codes, values, fields, strict=True)
                )
            )

        change(1, {"id": 1, "note": "a"})
        change(2, {"id": 2, "note": None})
        becomes(connection, "SELECT * FROM kz ORDER BY id", [(1, "a"), (2, None)])
        change(1, {"id": 1, "note": "b"})
        change(2, None)
        becomes(connection, "SELECT * FROM kz ORDER BY id", [(1, "b")])
    finally:
        connection.execute("DROP CONNECTION kr CASCADE")


def test_where_a_source_starts(
    connection: psycopg.Connection, kafka: KafkaServer, broker: str, topic: str
) -> None:
    send = Feed(kafka, topic)
    for i in range(4):
        send(b"k", str(i).encode(), partition=0, timestamp=1_700_000_000_000 + i)
    starts = {"START OFFSET (2)": "23", "START TIMESTAMP 1700000000003": "3"}
    starts["START TIMESTAMP -60000"] = ""
    for at, (start, expected) in enumerate(starts.items()):
        connection.execute(
            f"CREATE SOURCE kst{at} FROM KAFKA CONNECTION {broker} (TOPIC '{topic}', {start})"
            " FORMAT TEXT"
        )
        rows = [(digit,) for digit in expected]
        becomes(connection, f"SELECT text FROM kst{at} ORDER BY text", rows)


def test_errors_of_values_inline(
    connection: psycopg.Connection, kafka: KafkaServer, broker: str, topic: str
) -> None:
    send = Feed(kafka, topic)
    send(b"a", {"n": 1})
    send(b"b", b"bad")
    connection.execute(
        f"CREATE SOURCE ki FROM KAFKA CONNECTION {broker} (TOPIC '{topic}') KEY FORMAT TEXT"
        " VALUE FORMAT JSON (n int) ENVELOPE UPSERT (VALUE DECODING ERRORS = INLINE AS wrong)"
    )
    becomes(
        connection,
        "SELECT key, n, wrong IS NULL FROM ki ORDER BY key",
        [("a", 1, True), ("b", None, False)],
    )


def test_a_view_becomes_a_topic_and_a_source_again(
    connection: psycopg.Connection, broker: str, topic: str
) -> None:
    """Out by a sink and back by a source: what a view has, and then what it has become."""
    connection.execute("CREATE TABLE kt (k int, v text)")
    connection.execute("INSERT INTO kt VALUES (1, 'a'), (1, 'b'), (2, 'c')")
    connection.execute(
        "CREATE MATERIALIZED VIEW kt_counts AS SELECT k, count(*) AS n FROM kt GROUP BY k"
    )
    try:
        for envelope in ("upsert", "debezium"):
            connection.execute(
                f"CREATE SINK kt_{envelope} FROM kt_counts INTO KAFKA CONNECTION {broker}"
                f" (TOPIC '{topic}-{envelope}') KEY (k) FORMAT JSON ENVELOPE {envelope}"
            )
        statuses = "SELECT name, status FROM mz_internal.mz_sink_statuses ORDER BY name"
        running = [("kt_debezium", "running"), ("kt_upsert", "running")]
        becomes(connection, statuses, running)
        for envelope in ("upsert", "debezium"):
            connection.execute(
                f"CREATE SOURCE kt_back_{envelope} FROM KAFKA CONNECTION {broker}"
                f" (TOPIC '{topic}-{envelope}') KEY FORMAT JSON (k int)"
                f" VALUE FORMAT JSON (k int, n bigint) ENVELOPE {envelope}"
            )
            becomes(connection, f"SELECT k, n FROM kt_back_{envelope} ORDER BY k", [(1, 2), (2, 1)])
        connection.execute("DELETE FROM kt WHERE k = 2")
        connection.execute("INSERT INTO kt VALUES (1, 'd'), (3, 'e')")
        for envelope in ("upsert", "debezium"):
            becomes(connection, f"SELECT k, n FROM kt_back_{envelope} ORDER BY k", [(1, 3), (3, 1)])
        sent = (
            "SELECT messages_committed >= 4, messages_committed = messages_staged,"
            " bytes_committed > 0 FROM mz_internal.mz_sink_statistics"
        )
        becomes(connection, sent, [(True, True, True)] * 2)
        with pytest.raises(psycopg.errors.DependentObjectsStillExist, match="kt_upsert"):
            connection.execute("DROP MATERIALIZED VIEW kt_counts")
        connection.execute("DROP SINK kt_upsert")
        assert connection.execute("SHOW SINKS").fetchall() == [
            ("kt_debezium", "kafka", "quickstart", "running", None)
        ]
    finally:
        connection.execute("DROP TABLE kt CASCADE")


@pytest.mark.parametrize(
    ("sql", "message"),
    [
        ("CREATE SOURCE kx FROM KAFKA CONNECTION nosuch (TOPIC 't') FORMAT TEXT", "does not exist"),
        ("CREATE SOURCE kx FROM KAFKA CONNECTION ka (TOPIC 'nosuch') FORMAT TEXT", "topic"),
        (
            "CREATE SOURCE kx FROM KAFKA CONNECTION ka (TOPIC '{topic}', START OFFSET (0,0,0))"
            " FORMAT TEXT",
            "specified more partitions (3) than topic ({topic}) contains (2)",
        ),
        (
            "CREATE SOURCE kx FROM KAFKA CONNECTION ka (TOPIC '{topic}', START OFFSET (5))"
            " FORMAT TEXT",
            "past its end",
        ),
        (
            "CREATE SOURCE kx FROM KAFKA CONNECTION ka (TOPIC '{topic}') FORMAT TEXT"
            " ENVELOPE UPSERT",
            "needs a key",
        ),
        (
            "CREATE SOURCE kx FROM KAFKA CONNECTION ka (TOPIC '{topic}') FORMAT JSON (offset int)"
            " INCLUDE OFFSET",
            'column "offset" would be there twice',
        ),
        (
            "CREATE SOURCE kx FROM KAFKA CONNECTION ka (TOPIC '{topic}') FORMAT AVRO USING SCHEMA"
            " 'no'",
            "Avro",
        ),
        ("SELECT * FROM ka", '"ka" is a connection, not a relation'),
        ("DROP SECRET ka", "is not a secret"),
        (
            "CREATE CONNECTION kx TO KAFKA (BROKER 'h:1', SASL USERNAME 'u', SASL PASSWORD 'pw')",
            "SASL PASSWORD takes a secret",
        ),
        ("CREATE CONNECTION kx TO KAFKA (BROKER 'h:1', SASL PASSWORD = SECRET no)", 'secret "no"'),
        (
            "CREATE CONNECTION kx TO KAFKA (BROKER 'h:1', SECURITY PROTOCOL = SECRET no)",
            "SECURITY PROTOCOL takes a text",
        ),
    ],
)
def test_refusals(
    connection: psycopg.Connection, broker: str, topic: str, sql: str, message: str
) -> None:
    with pytest.raises(psycopg.Error) as caught:
        connection.execute(sql.format(topic=topic))  # type: ignore[arg-type]
    assert message.format(topic=topic) in str(caught.value)
    assert "kx" not in {name for (name, _) in connection.execute("SHOW OBJECTS").fetchall()}


def test_a_secret_is_told_to_the_broker_alone(
    server: Serving, connection: psycopg.Connection, kafka_folder: Path
) -> None:
    """And where it is wrong or missing, the source says so and goes on when it is right."""
    guarded = KafkaServer(kafka_folder / "guarded", security="sasl_scram")
    secrets = server.data / "secrets"
    try:
        guarded.create_topic("t")
        send = Feed(guarded, "t")
        send(b"a", b"1")
        connection.execute(f"CREATE SECRET kpw AS '{PASSWORD}'")
        connection.execute(f"CREATE SECRET IF NOT EXISTS kpw AS '{PASSWORD}-other'")
        connection.execute("CREATE SECRET kwrong AS 'not-the-password'")
        for name, secret in (("kg", "kpw"), ("kbad", "kwrong")):
            connection.execute(
                f"CREATE CONNECTION {name} TO KAFKA (BROKER '{guarded.bootstrap}',"
                " SECURITY PROTOCOL = 'SASL_PLAINTEXT', SASL MECHANISMS = 'SCRAM-SHA-256',"
                f" SASL USERNAME = 'tidemark', SASL PASSWORD = SECRET {secret})"
            )
        with pytest.raises(psycopg.OperationalError, match="does not let us in"):
            connection.execute(
                "CREATE SOURCE kx FROM KAFKA CONNECTION kbad (TOPIC 't') FORMAT TEXT"
            )
        connection.execute("CREATE SOURCE ksec FROM KAFKA CONNECTION kg (TOPIC 't') FORMAT TEXT")
        becomes(connection, "SELECT text FROM ksec", [("1",)])

        def stalled(reason: str) -> None:
            def look() -> bool:
                kind, word, error = status(connection, "ksec")
                return (kind, word) == ("kafka", "stalled") and reason in (error or "")

            eventually(f"the source is stalled: {reason}", look)

        connection.execute("ALTER SECRET kpw AS 'not-the-password'")
        stalled("does not let us in")
        (secrets / "kpw").unlink()
        stalled('the value of secret "kpw" cannot be read')
        fails(connection, "SELECT * FROM ksec", "cannot be read")
        connection.execute(f"ALTER SECRET kpw AS '{PASSWORD}'")
        send(b"a", b"2")
        becomes(connection, "SELECT text FROM ksec ORDER BY text", [("1",), ("2",)])
        # The replica is asked once a second.
        eventually("ok", lambda: status(connection, "ksec") == ("kafka", "running", None))

        shown = connection.execute("SHOW CREATE SECRET kpw").fetchall()
        assert shown == [("kpw", "CREATE SECRET kpw AS '***'")]
        assert ("kpw",) in connection.execute("SHOW SECRETS").fetchall()
        with pytest.raises(psycopg.errors.DependentObjectsStillExist):
            connection.execute("DROP SECRET kpw")
        for bad in (
            f"CREATE SECRET x '{PASSWORD}'",
            f"CREATE SECRET x AS y '{PASSWORD}'",
            f"EXPLAIN CREATE SECRET x AS '{PASSWORD}'",
            f"COPY (CREATE SECRET x AS '{PASSWORD}') TO STDOUT",
        ):
            with pytest.raises(psycopg.Error) as caught:
                connection.execute(bad)
            assert PASSWORD not in str(caught.value)
        assert secrets.stat().st_mode & 0o777 == 0o700
        connection.execute("DROP SECRET kpw CASCADE")
        connection.execute("DROP SECRET kwrong CASCADE")
        assert list(secrets.iterdir()) == []
    finally:
        guarded.stop()
    told = [server.log, server.clusterd_log, *texts_below(server.data)]
    for secret in (PASSWORD, "not-the-password"):
        assert not any(secret in text for text in told)


def test_what_uses_a_connection_goes_where_it_says_now(
    connection: psycopg.Connection, kafka: KafkaServer, broker: str, topic: str
) -> None:
    send = Feed(kafka, topic)
    send(b"a", b"1")
    connection.execute(
        f"CREATE SOURCE km FROM KAFKA CONNECTION {broker} (TOPIC '{topic}') FORMAT TEXT"
    )
    becomes(connection, "SELECT text FROM km", [("1",)])
    connection.execute(f"ALTER CONNECTION {broker} SET (BROKER 'nowhere.invalid:9092')")
    eventually("stalled", lambda: status(connection, "km")[1] == "stalled")
    send(b"a", b"2")
    connection.execute(f"ALTER CONNECTION {broker} SET (BROKERS ('{kafka.bootstrap}'))")
    becomes(connection, "SELECT text FROM km ORDER BY text", [("1",), ("2",)])
    eventually("running", lambda: status(connection, "km") == ("kafka", "running", None))


def test_a_certificate_authority_in_the_connection(
    connection: psycopg.Connection, kafka_folder: Path
) -> None:
    guarded = KafkaServer(kafka_folder / "certified", security="tls")
    try:
        guarded.create_topic("t")
        Feed(guarded, "t")(b"a", b"1")
        authority = (kafka_folder / "certified" / "ca.pem").read_text()
        connection.execute("CREATE SECRET ktls AS 'no certificate'")
        for name, value in (("ktrust", f"'{authority}'"), ("kdoubt", "SECRET ktls")):
            connection.execute(
                f"CREATE CONNECTION {name} TO KAFKA (BROKER '{guarded.bootstrap}',"
                f" SSL CERTIFICATE AUTHORITY = {value})"
            )
        connection.execute("CREATE SOURCE kc FROM KAFKA CONNECTION ktrust (TOPIC 't') FORMAT TEXT")
        becomes(connection, "SELECT text FROM kc", [("1",)])
        with pytest.raises(psycopg.DataError, match="connection cannot be used"):
            connection.execute(
                "CREATE SOURCE kx FROM KAFKA CONNECTION kdoubt (TOPIC 't') FORMAT TEXT"
            )
    finally:
        connection.execute("DROP CONNECTION IF EXISTS ktrust CASCADE")
        connection.execute("DROP SECRET IF EXISTS ktls CASCADE")
        guarded.stop()


@pytest.mark.soak
def test_a_killed_server_goes_on_where_it_was(
    tmp_path: Path, kafka: KafkaServer, topic: str
) -> None:
    """Nothing is lost or doubled, whatever was sent while nobody was there."""
    send = Feed(kafka, topic)
    server = Serving(tmp_path / "data")
    try:
        server.start()
        with server.connect() as connection:
            connection.execute(f"CREATE CONNECTION k TO KAFKA (BROKER '{kafka.bootstrap}')")
            source = f"FROM KAFKA CONNECTION k (TOPIC '{topic}')"
            connection.execute(
                f"CREATE SOURCE latest {source} KEY FORMAT TEXT VALUE FORMAT TEXT ENVELOPE UPSERT"
            )
            connection.execute(f"CREATE SOURCE log {source} FORMAT TEXT")
            connection.execute(
                "CREATE MATERIALIZED VIEW per AS SELECT text, count(*) AS n FROM log"
                " WHERE text IS NOT NULL GROUP BY text"
            )
            connection.execute(
                f"CREATE SINK out FROM per INTO KAFKA CONNECTION k (TOPIC '{topic}-out')"
                " KEY (text) FORMAT JSON ENVELOPE UPSERT"
            )
            for i in range(20):
                send(str(i % 4).encode(), b"first")
            becomes(connection, "SELECT count(*) FROM latest", [(4,)])
            becomes(connection, "SELECT text, n FROM per", [("first", 20)])
        send(b"0", b"second")
        server.kill_all()
        send(b"1", None)
        send(b"2", b"third")
        server.start()
        with server.connect() as connection:
            expected = [("0", "second"), ("2", "third"), ("3", "first")]
            becomes(connection, "SELECT key, text FROM latest ORDER BY key", expected)
            counts = [("first", 20), ("second", 1), ("third", 1)]
            becomes(connection, "SELECT text, n FROM per ORDER BY text", counts)
            connection.execute(
                f"CREATE SOURCE back FROM KAFKA CONNECTION k (TOPIC '{topic}-out')"
                " KEY FORMAT JSON (text text) VALUE FORMAT JSON (n bigint) ENVELOPE UPSERT"
            )
            becomes(connection, "SELECT text, n FROM back ORDER BY text", counts)
            becomes(connection, "SELECT sum(offset) FROM latest_progress", [(23,)])
    finally:
        server.destroy()
