"""What is PostgreSQL's own: sessions, servers that die and come back, names, who hears whom."""

from __future__ import annotations

import socket
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, suppress
from uuid import uuid4

import psycopg
import pytest
from heard import Heard

from services import PostgresServer
from tidemark.errors import (
    Determinate,
    Indeterminate,
    InvalidUsage,
)
from tidemark.persist.consensus import Versioned
from tidemark.persist.postgres import PostgresConsensus


class TestPostgres:
    def test_commits_are_synchronous_whatever_the_server_says(
        self, postgres_server: PostgresServer, schema_uri: str
    ):
        with psycopg.connect(postgres_server.uri()) as plain:
            assert plain.execute("SHOW synchronous_commit").fetchone() == ("off",)
        with closing(PostgresConsensus(schema_uri)) as consensus:
            connection = consensus._borrow()
            assert connection.execute("SHOW synchronous_commit").fetchone() == ("on",)
            connection.close()

    def test_the_server_is_killed_and_comes_back(
        self, postgres_server: PostgresServer, schema_uri: str
    ):
        with closing(PostgresConsensus(schema_uri)) as consensus:
            heard = Heard()
            stop = consensus.watch(heard)
            assert heard.wait(None)
            for seqno in range(5):
                assert consensus.compare_and_set("k", Versioned(seqno, b"x"))
            postgres_server.kill()
            try:
                with pytest.raises(Determinate):
                    consensus.head("k")
                with pytest.raises(Determinate, match="cannot connect"):
                    consensus.compare_and_set("k", Versioned(5, b"x"))
                heard.keys.clear()
            finally:
                postgres_server.start()
            head = consensus.head("k")
            assert head == Versioned(4, b"x"), "what was told done survived"
            assert consensus.compare_and_set("k", Versioned(5, b"x"))
            assert heard.wait(None), "it listens again, and says so"
            assert consensus.compare_and_set("j", Versioned(0, b"x"))
            assert heard.wait("j")
            stop()

    def test_what_is_truncated_meanwhile_is_not_won(
        self, postgres_server: PostgresServer, schema_uri: str
    ):
        """Whoever waits at one log has already seen where another one ended."""
        schema = schema_uri.rpartition("=")[2]
        waits = (
            "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
            " AND application_name = 'tidemark'"
        )

        def until_waiting(count: int, what: Future) -> None:
            with psycopg.connect(postgres_server.uri(), autocommit=True) as watching:
                while watching.execute(waits).fetchone() != (count,) and not what.done():
                    pass

        with (
            closing(PostgresConsensus(schema_uri)) as consensus,
            psycopg.connect(postgres_server.uri()) as twin,
            ThreadPoolExecutor() as pool,
        ):
            for key in "ab":
                assert consensus.compare_and_set(key, Versioned(0, b"x"))
            twin.execute(f"INSERT INTO {schema}.consensus VALUES ('a', 1, 'twin')")
            both = [("a", Versioned(1, b"x")), ("b", Versioned(1, b"x"))]
            late = pool.submit(consensus.compare_and_set_all, both)
            until_waiting(1, late)
            for seqno in (1, 2):
                assert consensus.compare_and_set("b", Versioned(seqno, b"y"))
            truncated = pool.submit(consensus.truncate, "b", 2)
            until_waiting(2, truncated)
            twin.commit()
            assert late.result() == [False, False]
            assert truncated.result() == 2
            assert consensus.scan("b") == [Versioned(2, b"y")]

    def test_killed_in_the_middle_of_commits(
        self, postgres_server: PostgresServer, schema_uri: str
    ):
        """What was told done is there; of what was doubtful, the head tells."""
        with closing(PostgresConsensus(schema_uri)) as consensus:
            enough = threading.Event()
            logs = dict.fromkeys(range(3), 0)

            def look(me: int) -> int | None:
                """How long the log is, once the server tells."""
                while not enough.wait(0.01):
                    with suppress(Determinate):
                        head = consensus.head(f"k{me}")
                        return 0 if head is None else head.seqno + 1
                return None

            def write(me: int) -> None:
                while not enough.is_set():
                    possible = {logs[me]}
                    try:
                        new = Versioned(logs[me], b"%d" % logs[me])
                        assert consensus.compare_and_set(f"k{me}", new)
                        logs[me] += 1
                        continue
                    except Determinate:
                        pass
                    except Indeterminate:
                        possible.add(logs[me] + 1)
                    found = look(me)
                    if found is not None:
                        assert found in possible
                        logs[me] = found

            with ThreadPoolExecutor(3) as pool:
                writers = [pool.submit(write, me) for me in range(3)]
                try:
                    for _ in range(2):
                        before = dict(logs)
                        while any(logs[me] < before[me] + 5 for me in logs):
                            assert not any(writer.done() for writer in writers)
                            enough.wait(0.005)
                        postgres_server.kill()
                        postgres_server.start()
                finally:
                    enough.set()
                for writer in writers:
                    writer.result()
            for me, length in logs.items():
                seqnos = [version.seqno for version in consensus.scan(f"k{me}")]
                assert seqnos[:length] == list(range(length))
                assert len(seqnos) <= length + 1

    def test_nobody_there(self, postgres_server: PostgresServer):
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            uri = f"postgres://me:secret@127.0.0.1:{taken.getsockname()[1]}/db"
            with pytest.raises(Determinate, match="is PostgreSQL running") as caught:
                PostgresConsensus(uri)
            assert "secret" not in str(caught.value)

    def test_a_wrong_database_and_wrong_parameters(self, postgres_server: PostgresServer):
        with pytest.raises(Determinate, match="does not exist"):
            PostgresConsensus(postgres_server.uri().replace("/postgres", "/nowhere"))
        with pytest.raises(InvalidUsage, match="colour"):
            PostgresConsensus(f"{postgres_server.uri()}?colour=red")

    @pytest.mark.parametrize("tail", ["host:port/db", "host/db?colour=red", "[host/db"])
    def test_bad_addresses_are_told_without_the_password(self, tail: str):
        with pytest.raises(InvalidUsage) as caught:
            PostgresConsensus(f"postgres://me:secret@{tail}")
        assert "secret" not in str(caught.value)

    def test_a_read_only_server(self, postgres_server: PostgresServer, schema_uri: str):
        with closing(PostgresConsensus(schema_uri)) as consensus:
            connection = consensus._borrow()
            connection.execute("SET default_transaction_read_only = on")
            consensus._idle = [connection]
            with pytest.raises(Determinate, match="read-only"):
                consensus.compare_and_set("k", Versioned(0, b""))

    def test_a_lost_connection_leaves_a_commit_open(
        self, postgres_server: PostgresServer, schema_uri: str
    ):
        """The backend is ended while the commit waits for another transaction's lock."""
        with closing(PostgresConsensus(schema_uri)) as consensus:
            table = f"{schema_uri.partition('schema=')[2]}.consensus"
            with (
                psycopg.connect(postgres_server.uri()) as blocker,
                psycopg.connect(postgres_server.uri(), autocommit=True) as killer,
                ThreadPoolExecutor(1) as pool,
            ):
                blocker.execute(f"LOCK TABLE {table}")  # type: ignore[arg-type]
                call = pool.submit(consensus.compare_and_set, "k", Versioned(0, b""))
                ended = []
                while not ended:
                    ended = killer.execute(
                        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                        " WHERE application_name = 'tidemark' AND wait_event_type = 'Lock'"
                    ).fetchall()
                with pytest.raises(Indeterminate):
                    call.result()
                blocker.rollback()
            assert consensus.head("k") is None
            assert consensus.compare_and_set("k", Versioned(0, b""))

    def test_several_schemas_do_not_touch(self, postgres_server: PostgresServer):
        one, two = (
            PostgresConsensus(postgres_server.uri(f"S {n} {uuid4().hex}")) for n in range(2)
        )
        with closing(one), closing(two):
            heard = Heard()
            stop = two.watch(heard)
            assert heard.wait(None)
            assert one.compare_and_set("k", Versioned(0, b"one"))
            assert two.compare_and_set("k", Versioned(0, b"two"))
            assert heard.wait("k")
            assert heard.keys.count("k") == 1
            assert two.scan("k") == [Versioned(0, b"two")]
            stop()
