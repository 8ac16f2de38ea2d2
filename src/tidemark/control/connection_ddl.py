"""Secrets and connections: statements into catalog items, and changes of what is there.

What a connection says may change while sources and sinks use it: they go on with what it says then.
The statement that made it is written anew, so that SHOW CREATE CONNECTION says what is so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from msgspec.structs import replace

from tidemark.control import statements as s
from tidemark.control.catalog import Catalog, Item
from tidemark.control.connections import KafkaTarget, RegistryTarget, Target
from tidemark.control.coordinator import Coordinator
from tidemark.control.hierarchy import spelled
from tidemark.control.parse import parse
from tidemark.control.parse_kafka import KAFKA_OPTIONS, REGISTRY_OPTIONS
from tidemark.control.placing import check_there
from tidemark.errors import SqlError, Unsupported

PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")

SETTINGS = {
    "security protocol": "security.protocol",
    "sasl mechanisms": "sasl.mechanism",
    "sasl username": "sasl.username",
    "sasl password": "sasl.password",
    "ssl certificate authority": "ssl.ca.pem",
    "ssl certificate": "ssl.certificate.pem",
    "ssl key": "ssl.key.pem",
}
"""librdkafka's names of a connection's options."""

CONFIDENTIAL = ("sasl password", "ssl key", "password")
"""Only a secret may say them: the text of a statement is kept and shown."""

PUBLIC = ("broker", "brokers", "security protocol", "sasl mechanisms", "url")
"""Only a text may say them: they are checked when the connection is made."""


async def create_secret(coordinator: Coordinator, statement: s.CreateSecret) -> None:
    def make(id_: str, name: str) -> Item:
        return Item(id_, name, "secret", statement.sql)

    await coordinator.create_secret(statement.name, statement.value, make)


async def alter_secret(coordinator: Coordinator, statement: s.AlterSecret) -> None:
    item = item_of(coordinator, statement.name, "secret")
    await coordinator.alter_secret(item, statement.value)


async def create_connection(coordinator: Coordinator, statement: s.CreateConnection) -> None:
    options = _given(coordinator, statement.options)
    target = _target(statement.kind, options)

    def make(id_: str, name: str) -> Item:
        return Item(
            id_, name, "connection", statement.sql, depends=options.depends, connection=target
        )

    await coordinator.create_connection(statement.name, make)


async def alter_connection(
    coordinator: Coordinator, statement: s.AlterConnection, notice: Callable[[str], None]
) -> None:
    catalog = coordinator.catalog
    if statement.if_exists and catalog.find(statement.name) is None:
        return notice(f'connection "{".".join(statement.name)}" does not exist, skipping')
    item = item_of(coordinator, statement.name, "connection")
    given = _given(coordinator, statement.options)

    def write() -> None:
        check_there(catalog, (item.id, *given.depends))
        catalog.put(_altered(catalog, catalog.items[item.id], given, statement.reset))

    await coordinator.change(write, configure=True)


def item_of(coordinator: Coordinator, name: s.Name, kind: str) -> Item:
    found = coordinator.catalog.find(name)
    if found is None:
        raise SqlError(
            f'{kind} "{".".join(name)}" does not exist',
            hint=f"CREATE {kind.upper()} makes one, SHOW {kind.upper()}S lists them",
            sqlstate="42704",
        )
    if found.kind != kind:
        raise SqlError(f'"{found.name}" is not a {kind}', sqlstate="42809")
    return found


class _Options(NamedTuple):
    """By their names in lower case."""

    texts: dict[str, str]
    secrets: dict[str, Item]

    @property
    def depends(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(item.id for item in self.secrets.values()))


def _given(
    coordinator: Coordinator, options: Iterable[tuple[str, str | s.SecretNamed]]
) -> _Options:
    found = _Options({}, {})
    for option, value in options:
        if isinstance(value, s.SecretNamed):
            if option in PUBLIC:
                raise SqlError(f"{option.upper()} takes a text, not a secret", sqlstate="22023")
            found.secrets[option] = item_of(coordinator, value.name, "secret")
        elif option in CONFIDENTIAL:
            raise SqlError(
                f"{option.upper()} takes a secret, not a text",
                hint=f"CREATE SECRET p AS '...', then {option.upper()} = SECRET p",
                sqlstate="22023",
            )
        else:
            found.texts[option] = value
    return found


def _said(catalog: Catalog, item: Item) -> _Options:
    """What the connection was made with. Its secrets go by what they are called everywhere."""
    statement, target = parse(item.sql), item.connection
    assert isinstance(statement, s.CreateConnection)
    secrets = {i.shown: i for i in catalog.items.values() if i.kind == "secret"}
    if isinstance(target, KafkaTarget):
        options = {setting: option for option, setting in SETTINGS.items()}
        named = {options[setting]: name for setting, name in target.secrets.items()}
    else:
        named = {"password": target.password} if target and target.password else {}
    return _Options(
        {option: value for option, value in statement.options if isinstance(value, str)},
        {option: secrets[name] for option, name in named.items()},
    )


def _altered(catalog: Catalog, item: Item, given: _Options, reset: tuple[str, ...]) -> Item:
    is_kafka = isinstance(item.connection, KafkaTarget)
    known = KAFKA_OPTIONS if is_kafka else REGISTRY_OPTIONS
    changed = {*given.texts, *given.secrets, *reset}
    if unknown := sorted(option.upper() for option in changed if option.upper() not in known):
        raise Unsupported(
            f'connection "{item.name}" has no option {unknown[0]}',
            hint=f"known: {', '.join(known)}",
        )
    if changed & {"broker", "brokers"}:
        changed |= {"broker", "brokers"}  # One takes the other's place.
    said = _said(catalog, item)
    options = _Options(
        {o: v for o, v in said.texts.items() if o not in changed} | given.texts,
        {o: v for o, v in said.secrets.items() if o not in changed} | given.secrets,
    )
    kind = "kafka" if is_kafka else "confluent schema registry"
    return replace(
        item,
        sql=f"CREATE CONNECTION {spelled(item.full_name)} TO {kind.upper()} ({_shown(options)})",
        depends=options.depends,
        connection=_target(kind, options),
    )


def _shown(options: _Options) -> str:
    texts = [(option, _literal(option, value)) for option, value in options.texts.items()]
    secrets = [(o, f"SECRET {spelled(item.full_name)}") for o, item in options.secrets.items()]
    return ", ".join(f"{option.upper()} = {value}" for option, value in (*texts, *secrets))


def _literal(option: str, value: str) -> str:
    each = value.split(",") if option == "brokers" else [value]
    texts = ", ".join("'" + text.replace("'", "''") + "'" for text in each)
    return f"({texts})" if option == "brokers" else texts


def _target(kind: str, options: _Options) -> Target:
    make = _kafka_target if kind == "kafka" else _registry_target
    return make(dict(options.texts), {o: item.shown for o, item in options.secrets.items()})


def _kafka_target(texts: dict[str, str], secrets: dict[str, str]) -> KafkaTarget:
    if ("broker" in texts) == ("brokers" in texts):
        raise SqlError(
            "a Kafka connection needs BROKER or BROKERS",
            hint="e.g. BROKER 'localhost:9092', or BROKERS ('a:9092', 'b:9092')",
        )
    brokers = texts.pop("broker", None) or texts.pop("brokers", "")
    given = {**texts, **secrets}
    has_sasl = any(option.startswith("sasl") for option in given)
    has_ssl = any(option.startswith("ssl") for option in given)
    default = "SASL_SSL" if has_sasl else "SSL" if has_ssl else "PLAINTEXT"
    protocol = texts.setdefault("security protocol", default).upper()
    texts["security protocol"] = protocol
    _check_choice("SECURITY PROTOCOL", protocol, PROTOCOLS)
    if protocol.startswith("SASL"):
        mechanism = texts.setdefault("sasl mechanisms", "PLAIN").upper()
        texts["sasl mechanisms"] = mechanism
        _check_choice("SASL MECHANISMS", mechanism, MECHANISMS)
        if missing := [o for o in ("sasl username", "sasl password") if o not in given]:
            raise SqlError(f"{protocol} needs {missing[0].upper()}", sqlstate="22023")
    elif has_sasl:
        raise SqlError(f"SASL options mean nothing with {protocol}", sqlstate="22023")
    if has_ssl and not protocol.endswith("SSL"):
        raise SqlError(f"SSL options mean nothing with {protocol}", sqlstate="22023")
    if ("ssl certificate" in given) != ("ssl key" in given):
        raise SqlError("SSL CERTIFICATE and SSL KEY go together", sqlstate="22023")
    return KafkaTarget(brokers, _as_settings(texts), _as_settings(secrets))


def _as_settings(options: dict[str, str]) -> dict[str, str]:
    return {SETTINGS[option]: value for option, value in options.items()}


def _check_choice(option: str, given: str, known: tuple[str, ...]) -> None:
    if given not in known:
        raise SqlError(
            f"{option} is not {given!r}", hint=f"use one of {', '.join(known)}", sqlstate="22023"
        )


def _registry_target(texts: dict[str, str], secrets: dict[str, str]) -> RegistryTarget:
    url = texts.get("url", "")
    _, _, place = url.partition("://")
    if not url.startswith(("http://", "https://")) or "@" in place.partition("/")[0]:
        raise SqlError(
            "URL takes an address such as 'http://localhost:8081', without a password in it",
            hint="a password goes into a secret: PASSWORD = SECRET p",
            sqlstate="22023",
        )
    if "username" in secrets:
        raise SqlError("USERNAME takes a text", sqlstate="22023")
    if ("username" in texts) != ("password" in secrets):
        raise SqlError("USERNAME and PASSWORD go together", sqlstate="22023")
    return RegistryTarget(url, texts.get("username"), secrets.get("password"))
