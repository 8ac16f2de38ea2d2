"""CREATE SOURCE ... FROM WEBHOOK: a statement into a catalog item, and what its author is told."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from tidemark.control import statements as s
from tidemark.control.catalog import Item
from tidemark.control.checks import RETAIN, retained_ms
from tidemark.control.webhook.check import planned_check
from tidemark.control.webhook.spec import Check, Given, Webhook
from tidemark.errors import SqlError, Unsupported
from tidemark.types import check_columns

if TYPE_CHECKING:
    from tidemark.control.coordinator import Coordinator


async def create_webhook(coordinator: Coordinator, statement: s.CreateWebhookSource) -> None:
    given = dict(statement.with_options)
    retain_ms = retained_ms(given.pop(RETAIN, None))
    if given:
        raise Unsupported(
            f"source option {next(iter(given)).upper()} is not supported",
            hint="known for a webhook: RETAIN HISTORY FOR",
        )
    check, depends = _check(coordinator, statement)
    webhook = Webhook(statement.format, statement.headers, statement.included, check)
    check_columns(webhook.columns)

    def make(id_: str, name: str) -> Item:
        return Item(
            id_,
            name,
            "source",
            statement.sql,
            columns=webhook.columns,
            shard=id_,
            depends=depends,
            retain_ms=retain_ms,
            webhook=webhook,
        )

    await coordinator.create_table(statement.name, make, cluster=statement.cluster)


def webhook_notices(
    coordinator: Coordinator, statement: s.CreateWebhookSource
) -> Iterator[tuple[str, str | None]]:
    """Where to post to, and that anybody may, if that is so and not what it is elsewhere here."""
    webhooks = coordinator.webhooks
    item = coordinator.catalog.find(statement.name)
    if item is None or item.webhook is None:
        return
    if webhooks.url is None:
        yield "the server was started without HTTP, so nothing can be posted to it", None
    else:
        yield f"URL to POST data is '{webhooks.url_of(item)}'", None
    if item.webhook.check is None and webhooks.asks_passwords():
        yield (
            f'anybody who reaches the server may write into "{item.name}": it has no CHECK, and'
            " webhooks ask for no password",
            "CREATE SOURCE ... CHECK (WITH (HEADERS, BODY, SECRET s) ...)",
        )


def _check(
    coordinator: Coordinator, statement: s.CreateWebhookSource
) -> tuple[Check | None, tuple[str, ...]]:
    """The condition, and the ids of the secrets that it needs."""
    if statement.check is None:
        return None, ()
    named: list[tuple[str, Given]] = []
    secrets: list[str] = []
    for each in statement.check_with:
        secret = _secret(coordinator, each.secret).id if each.what == "secret" else ""
        secrets += [secret] if secret else []
        named.append((each.name, Given(each.what, each.as_bytes, secret)))
    return planned_check(statement.check, named), tuple(dict.fromkeys(secrets))


def _secret(coordinator: Coordinator, name: s.Name) -> Item:
    found = coordinator.catalog.find(name)
    if found is None or found.kind != "secret":
        raise SqlError(
            f'secret "{".".join(name)}" does not exist',
            hint="CREATE SECRET makes one, SHOW SECRETS lists them",
            sqlstate="42704",
        )
    return found
