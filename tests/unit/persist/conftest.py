"""Places for a consensus of one test's own."""

from __future__ import annotations

from pathlib import Path
from uuid import uuid4

import pytest

from services import PostgresServer


@pytest.fixture
def sqlite_uri(tmp_path: Path) -> str:
    return f"sqlite://{tmp_path / 'deep' / 'consensus'}"


@pytest.fixture
def schema_uri(postgres_server: PostgresServer) -> str:
    return postgres_server.uri(f"s_{uuid4().hex}")
