"""Webhooks of a real server: what the documentation shows, many senders, and control killed."""

from __future__ import annotations

import hashlib
import hmac
import re
import subprocess
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psycopg
import pytest
from serving import DEADLINE, Serving, eventually

DOCS = Path(__file__).parents[2] / "docs" / "webhooks.md"

SECRET = "wh secret"
SENDERS = 8
EACH = 3


@pytest.fixture
def hook(server: Serving, connection: psycopg.Connection) -> Iterator[str]:
    connection.execute(f"CREATE SECRET wh_key AS '{SECRET}'")
    connection.execute(
        "CREATE SOURCE wh_hook FROM WEBHOOK BODY FORMAT JSON INCLUDE HEADER 'x-sender' AS sender"
        " CHECK (WITH (HEADERS, BODY BYTES, SECRET wh_key) constant_time_eq("
        "headers->'x-signature', encode(hmac(body, wh_key, 'sha256'), 'hex')))"
    )
    connection.execute(
        "CREATE MATERIALIZED VIEW wh_view AS SELECT body->>'id' AS id, count(*) AS times,"
        " min(sender) AS sender FROM wh_hook GROUP BY body->>'id'"
    )
    yield "wh_hook"
    with server.connect() as another:
        another.execute("DROP SOURCE wh_hook CASCADE")
        another.execute("DROP SECRET wh_key")


def post(server: Serving, body: str, *, sender: str = "", secret: str = SECRET) -> int | None:
    """The status, or None if there was no answer."""
    data = body.encode()
    signature = hmac.new(secret.encode(), data, hashlib.sha256).hexdigest()
    request = urllib.request.Request(
        f"{server.http}/api/webhook/tidemark/public/wh_hook",
        data=data,
        headers={"X-Signature": signature, "X-Sender": sender},
    )
    try:
        with urllib.request.urlopen(request, timeout=DEADLINE) as response:
            return response.status
    except urllib.error.HTTPError as error:
        with error:
            return error.code
    except OSError:
        return None


def test_what_the_documentation_shows(server: Serving, connection: psycopg.Connection):
    text = DOCS.read_text()
    sql = re.search(r"```sql\n(.*?)```", text, re.DOTALL)
    script = re.search(r"```sh\n(.*?)```", text, re.DOTALL)
    assert sql is not None
    assert script is not None
    notices: list[str] = []
    connection.add_notice_handler(lambda notice: notices.append(notice.message_primary or ""))
    for statement in sql[1].split(";"):
        if statement.strip():
            connection.execute(statement)  # type: ignore[arg-type]
    url = f"{server.http}/api/webhook/tidemark/public/events"
    assert notices == [f"URL to POST data is '{url}'"]
    commands = script[1].replace("127.0.0.1:6876", f"127.0.0.1:{server.http_port}")
    wrong = commands.replace("-hmac 'correct horse'", "-hmac 'wrong horse'").replace("-sSf", "-sS")
    for sent, status in ((commands, "200"), (wrong, "403"), (commands, "200")):
        done = subprocess.run(
            ["bash", "-euc", sent], capture_output=True, text=True, check=True, timeout=DEADLINE
        )
        assert done.stdout.endswith(f"{status}\n"), done
    assert connection.execute("SELECT * FROM by_kind").fetchall() == [("opened", 2)]
    connection.execute("DROP SOURCE events CASCADE")
    connection.execute("DROP SECRET hook_key")
    assert post(server, "{}") == 404


def test_strict_reads_see_what_was_acknowledged_and_views_follow(
    server: Serving, connection: psycopg.Connection, hook: str
):
    def sender(number: int) -> None:
        # Each looks for its own in a session of its own, right after the answer.
        with server.connect() as reading:
            for n in range(EACH):
                assert post(server, f'{{"id": "{number}-{n}"}}', sender=str(number)) == 200
                found = reading.execute(
                    "SELECT count(*) FROM wh_hook WHERE sender = %s", (str(number),)
                ).fetchone()
                assert found == (n + 1,)

    with ThreadPoolExecutor(SENDERS) as pool:
        list(pool.map(sender, range(SENDERS)))
    assert post(server, '{"id": "x"}', secret="another") == 403
    assert post(server, "{") == 400
    assert post(server, '{"id": 1}\n{"id": 1}') == 200
    expected = {(f"{s}-{n}", 1, str(s)) for s in range(SENDERS) for n in range(EACH)} | {
        ("1", 2, "")
    }
    assert set(connection.execute("SELECT * FROM wh_view").fetchall()) == expected
    assert connection.execute("VERIFY MATERIALIZED VIEW wh_view").fetchall() == []
    statistics = connection.execute(
        "SELECT requests_accepted, requests_refused, rows_committed"
        " FROM mz_internal.mz_webhook_statistics WHERE name = 'wh_hook'"
    ).fetchone()
    assert statistics == (SENDERS * EACH + 1, 2, SENDERS * EACH + 2)


def test_nothing_acknowledged_is_lost_or_doubled_when_control_is_killed(server: Serving, hook: str):
    acknowledged: set[str] = set()
    sent: set[str] = set()
    unanswered: list[str] = []
    enough = threading.Event()

    def sender(number: int) -> None:
        n = 0
        while not enough.is_set():
            id_, n = f"{number}-{n}", n + 1
            sent.add(id_)
            match post(server, f'{{"id": "{id_}"}}', sender=str(number)):
                case 200:
                    acknowledged.add(id_)
                case None | 503:
                    unanswered.append(id_)
                    enough.wait(0.1)  # As senders do that meet with no answer.
                case status:
                    raise AssertionError(status)

    def more(count: int) -> None:
        wanted = len(acknowledged) + count
        eventually("more answers", lambda: len(acknowledged) >= wanted, every=0.01)

    with ThreadPoolExecutor(SENDERS) as pool:
        senders = [pool.submit(sender, number) for number in range(SENDERS)]
        try:
            more(50)
            server.kill_control()
            server.start()
            more(50)
        finally:
            enough.set()
        for each in senders:
            each.result()
    assert unanswered, "it was killed while nothing was on its way"
    with server.connect() as connection:
        stored = connection.execute("SELECT body->>'id' FROM wh_hook").fetchall()
        ids = [id_ for (id_,) in stored]
        assert len(ids) == len(set(ids)), "something is there twice"
        assert acknowledged <= set(ids) <= sent
        view = connection.execute("SELECT id, times FROM wh_view").fetchall()
        assert sorted(view) == sorted((id_, 1) for id_ in ids)
