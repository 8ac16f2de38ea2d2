"""The ports and processes of servers for development."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from tidemark.dev import process
from tidemark.errors import Unavailable


def test_a_free_port_is_none_that_an_outgoing_connection_could_take():
    handed_out = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    port = process.free_port()
    with socket.create_server(("127.0.0.1", port)):
        assert process.FIRST_PORT <= port < max(handed_out, process.USUALLY_HANDED_OUT)
        with pytest.raises(Unavailable, match=f"port {port} cannot be had"):
            process.require_free(port)


def test_a_port_that_is_taken_is_not_offered(monkeypatch: pytest.MonkeyPatch):
    with socket.create_server(("127.0.0.1", process.free_port())) as taken:
        port = taken.getsockname()[1]
        drawn = [port, process.free_port()]
        monkeypatch.setattr(process.DRAWN_APART, "sample", lambda _range, _count: drawn)
        assert process.free_port() == drawn[1]
