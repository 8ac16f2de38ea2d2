"""Settings and relations that clients send, or ask for, because PostgreSQL has them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from session_harness import Client, serving
from tidemark.control.coordinator import Coordinator
from tidemark.control.session import Session
from tidemark.errors import SqlError


def run(folder: Path, body: Callable[[Coordinator], Awaitable[None]]) -> None:
    async def scenario() -> None:
        async with serving(folder) as coordinator:
            await body(coordinator)

    asyncio.run(scenario())


def test_a_client_whose_machine_is_in_another_time_zone_gets_in_and_is_told(tmp_path: Path):
    async def body(coordinator: Coordinator) -> None:
        given = {"TimeZone": "Europe/Berlin", "DateStyle": "ISO", "application_name": "a"}
        client = Client(coordinator)
        client.session = Session(coordinator, user="u", database="tidemark", options=given)
        (notice,) = client.session.notices()
        assert notice.message == 'parameter "TimeZone" cannot be "Europe/Berlin" here: it is UTC'
        assert await client("SHOW TIME ZONE") == [("UTC",)]
        assert await client("SHOW application_name") == [("a",)]

        for wrong, asked in (
            ({"TimeZone": "Europe/Berlin"}, ("timezone",)),
            ({"client_encoding": "LATIN1"}, ()),
            ({"statement_timeout": "soon"}, ()),
        ):
            with pytest.raises(SqlError, match="invalid value for parameter"):
                Session(coordinator, user="u", database="tidemark", options=wrong, demanded=asked)

    run(tmp_path, body)


def test_what_clients_ask_of_postgresql_can_be_shown_and_made_sure_of(tmp_path: Path):
    async def body(coordinator: Coordinator) -> None:
        client = Client(coordinator)
        for name, value in {
            "transaction_read_only": "off",
            "is_superuser": "on",
            "server_encoding": "UTF8",
            "default_tablespace": "",
            "default_transaction_isolation": "serializable",
        }.items():
            assert await client(f"SHOW {name}") == [(value,)]
            assert await client(f"SELECT current_setting('{name}')") == [(value,)]
        await client("SET lock_timeout = 0")
        await client("SET jit = false")
        await client("SET bytea_output = 'hex'")
        with pytest.raises(SqlError) as caught:
            await client("SET bytea_output = 'escape'")
        assert caught.value.sqlstate == "55P02"

        await client("BEGIN READ ONLY")
        assert await client("SHOW transaction_read_only") == [("on",)]
        assert await client("SELECT current_setting('transaction_read_only')") == [("on",)]
        await client("ROLLBACK")
        await client("CREATE ROLE plain")
        await client("SET ROLE plain")
        assert await client("SHOW is_superuser") == [("off",)]

    run(tmp_path, body)


def test_set_config_checks_what_set_checks(tmp_path: Path):
    async def body(coordinator: Coordinator) -> None:
        admin, client = Client(coordinator), Client(coordinator)
        await admin("CREATE ROLE alice LOGIN")
        client.session = Session(coordinator, user="alice", database="tidemark", options={})
        for name, value, sqlstate in (
            ("cluster", "nosuch", "42704"),
            ("database", "nosuch", "3D000"),
            ("role", "tidemark", "42501"),
            ("timezone", "Europe/Berlin", "22023"),
        ):
            before = await client(f"SHOW {name}")
            with pytest.raises(SqlError) as caught:
                await client(f"SELECT set_config('{name}', '{value}', false)")
            assert caught.value.sqlstate == sqlstate
            assert await client(f"SHOW {name}") == before

    run(tmp_path, body)


def test_dbt_finds_what_was_granted(tmp_path: Path):
    async def body(coordinator: Coordinator) -> None:
        client = Client(coordinator)
        client.session = Session(coordinator, user="tidemark", database="tidemark", options={})
        await client("CREATE ROLE bob")
        await client("CREATE TABLE t (k int)")
        await client("GRANT SELECT ON t TO bob")
        await client("GRANT INSERT ON t TO PUBLIC")
        found = await client(
            "SELECT grantee, privilege_type FROM information_schema.role_table_grants"
            " WHERE grantor = current_role AND grantee != current_role"
            " AND table_schema = 'public' AND table_name = 't'"
        )
        assert found == [("bob", "SELECT")]

    run(tmp_path, body)


def test_settings_are_shown_as_postgresql_shows_them_however_they_were_written(tmp_path: Path):
    async def body(coordinator: Coordinator) -> None:
        client = Client(coordinator)
        for given, shown in {
            "client_encoding = 'utf-8'": "UTF8",
            "datestyle = iso": "ISO, MDY",
            "datestyle = 'iso, dmy'": "ISO, DMY",
            "timezone = 'utc'": "UTC",
            "statement_timeout = 5000": "5s",
            "statement_timeout = '90s'": "90s",
            "statement_timeout = '0.5s'": "500ms",
            "idle_session_timeout = '48h'": "2d",
            "idle_session_timeout = '0s'": "0",
        }.items():
            await client(f"SET {given}")
            assert await client(f"SHOW {given.split()[0]}") == [(shown,)]
        reported = client.session.parameter_changes()
        assert reported["client_encoding"] == "UTF8"
        assert reported["DateStyle"] == "ISO, DMY"

    run(tmp_path, body)


def test_a_long_application_name_is_cut_off(tmp_path: Path):
    async def body(coordinator: Coordinator) -> None:
        client = Client(coordinator)
        await client(f"SET application_name = '{'ä' * 20_000}'")
        assert await client("SHOW application_name") == [("ä" * 31,)]
        assert client.session.parameter_changes()["application_name"] == "ä" * 31

    run(tmp_path, body)
