"""The registry's client, against a server that says what a registry says."""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from tidemark.errors import InvalidUsage, Unavailable, Unsupported
from tidemark.storage.kafka.registry import Registry, Schema
from tidemark.storage.kafka.spec import RegistryConnection

ANSWERS: dict[str, Any] = {
    "/api/schemas/ids/1": {"schema": '"int"'},
    "/api/schemas/ids/2": {"schema": "?", "references": [{"name": "other"}]},
    "/api/schemas/ids/4": [],
    "/api/subjects/a%2Fb/versions/latest": {"id": 3, "schema": "p", "schemaType": "PROTOBUF"},
    "/api/subjects/a%2Fb/versions/1": {"id": 1, "schema": '"int"'},
    "/api/subjects/odd/versions/latest": {"schema": '"int"'},
}


class Server(ThreadingHTTPServer):
    asked: list[str]


class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        assert isinstance(self.server, Server)
        self.server.asked.append(self.path)
        wanted = "Basic " + base64.b64encode(b"me:pass").decode()
        if self.headers["Authorization"] != wanted:
            return self.send_error(401)
        if self.path.endswith("/500"):
            return self.send_error(500)
        if self.path not in ANSWERS:
            return self.send_error(404)
        self.send_response(200)
        self.end_headers()
        self.wfile.write(json.dumps(ANSWERS[self.path]).encode())

    def log_message(self, format: str, *args: Any):
        pass


@pytest.fixture
def server() -> Iterator[Server]:
    started = Server(("127.0.0.1", 0), Handler)
    started.asked = []
    thread = threading.Thread(target=started.serve_forever, daemon=True)
    thread.start()
    yield started
    started.shutdown()
    thread.join()
    started.server_close()


def client(server: Server, password: str = "pass") -> Registry:
    url = f"http://127.0.0.1:{server.server_port}/api/"
    return Registry(RegistryConnection(url, "me", password))


def test_a_schema_is_asked_for_once(server: Server):
    registry = client(server)
    assert registry.by_id(1) == registry.by_id(1) == Schema(1, "AVRO", '"int"')
    assert registry.avro(1) == '"int"'
    assert server.asked == ["/api/schemas/ids/1"]


def test_versions_of_a_subject(server: Server):
    assert client(server).version("a/b") == Schema(3, "PROTOBUF", "p")
    assert client(server).version("a/b", 1) == Schema(1, "AVRO", '"int"')


def test_what_is_not_there_or_not_taken_is_refused(server: Server):
    with pytest.raises(InvalidUsage, match="has no schema 99"):
        client(server).by_id(99)
    with pytest.raises(InvalidUsage, match='has no version latest of subject "x"'):
        client(server).version("x")
    with pytest.raises(Unsupported, match="refers to other schemas"):
        client(server).by_id(2)
    with pytest.raises(InvalidUsage, match="http://"):
        Registry(RegistryConnection("file:///etc/passwd"))


def test_trouble_is_unavailable(server: Server):
    with pytest.raises(Unavailable, match="does not let us in"):
        client(server, "wrong").by_id(1)
    for id_, said in ((500, "status 500"), (4, "no object")):
        with pytest.raises(Unavailable, match=said):
            client(server).by_id(id_)
    with pytest.raises(Unavailable, match="no id of the schema"):
        client(server).version("odd")
    gone = client(server)
    server.server_close()
    with pytest.raises(Unavailable, match="does not answer"):
        gone.by_id(1)
