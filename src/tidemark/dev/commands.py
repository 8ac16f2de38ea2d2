"""`tidemark dev`: the commands. Imports of clients wait until a command runs."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from tidemark.errors import InvalidUsage
from tidemark.tools.output import FAILED, print_table, reporting

app = typer.Typer(
    help="Servers for development and tests, on loopback: Kafka, a schema registry.",
    no_args_is_help=True,
)
kafka_app = typer.Typer(help="A Kafka broker of one node.", no_args_is_help=True)
registry_app = typer.Typer(
    help="A schema registry (Apicurio) that speaks Confluent's protocol.", no_args_is_help=True
)
app.add_typer(kafka_app, name="kafka")
app.add_typer(registry_app, name="registry")

KafkaFolder = Annotated[Path, typer.Option("--folder", help="Holds the broker and its data.")]
RegistryFolder = Annotated[Path, typer.Option("--folder", help="Holds the schemas.")]

KAFKA = Path("dev.tidemark/kafka")
REGISTRY = Path("dev.tidemark/registry")


@kafka_app.command()
def up(
    folder: KafkaFolder = KAFKA,
    port: Annotated[int, typer.Option(help="Where clients connect; 0: any free port.")] = 9092,
    security: Annotated[str, typer.Option(help="none, sasl_plain, sasl_scram or tls.")] = "none",
    user: Annotated[str, typer.Option(help="For SASL.")] = "tidemark",
    password: Annotated[str, typer.Option(help="For SASL.")] = "tidemark-secret",
) -> None:
    """Start a broker, or start it again with its data; prints how to connect."""
    with reporting():
        from tidemark.dev.kafka import Broker

        broker = Broker.at(folder, port=port, security=security, user=user, password=password)
        broker.start()
        for name, value in broker.client_settings().items():
            print(f"{name}={value}")


@kafka_app.command()
def down(folder: KafkaFolder = KAFKA) -> None:
    """Stop the broker; its data stays."""
    with reporting():
        from tidemark.dev.kafka import Broker

        Broker.running(folder).stop()


@kafka_app.command()
def status(folder: KafkaFolder = KAFKA) -> None:
    """Where the broker is; exits with 1 if none runs."""
    with reporting():
        from tidemark.dev.kafka import Broker

        broker = Broker.running(folder)
        print(f"running at {broker.bootstrap}, process {broker.pid}, log {broker.log}")


@kafka_app.command()
def topic(
    name: Annotated[str | None, typer.Argument(help="The topic to create or delete.")] = None,
    folder: KafkaFolder = KAFKA,
    partitions: Annotated[int, typer.Option(min=1)] = 1,
    config: Annotated[list[str] | None, typer.Option(help="name=value; may be repeated.")] = None,
    delete: Annotated[bool, typer.Option("--delete", help="Delete it instead.")] = False,
    list_: Annotated[bool, typer.Option("--list", help="List all topics instead.")] = False,
) -> None:
    """Create, delete or list topics."""
    with reporting():
        from tidemark.dev.kafka import Broker

        if (name is None) != list_ or (list_ and delete):
            raise InvalidUsage("give the name of a topic, or --list")
        settings = dict(_pair(each) for each in config or ())
        broker = Broker.running(folder)
        if name is None:
            print_table(("topic", "partitions>"), broker.topics().items())
        elif delete:
            broker.delete_topic(name)
        else:
            broker.create_topic(name, partitions=partitions, config=settings)


@kafka_app.command()
def produce(
    topic: str,
    folder: KafkaFolder = KAFKA,
    file: Annotated[Path | None, typer.Option(help="Lines of this instead of stdin.")] = None,
    key_separator: Annotated[str, typer.Option(help="Between key and value.")] = "\t",
    tombstones: Annotated[
        bool,
        typer.Option("--tombstones", help="What has an empty value has none: it deletes its key."),
    ] = False,
) -> None:
    """Send lines as messages, `key<TAB>value` or just `value`; returns when all are stored."""
    with reporting():
        from tidemark.dev.kafka import Broker
        from tidemark.dev.produce import messages, send

        if not key_separator:
            raise InvalidUsage("the separator of keys cannot be empty")
        broker = Broker.running(folder)
        with open(file, "rb") if file else sys.stdin.buffer as lines:
            given = messages(lines, key_separator.encode(), tombstones=tombstones)
            count = send(broker, topic, given)
        print("1 message" if count == 1 else f"{count} messages")


@registry_app.command("up")
def registry_up(
    folder: RegistryFolder = REGISTRY,
    port: Annotated[int, typer.Option(help="0: any free port.")] = 8081,
) -> None:
    """Start the registry; prints its address."""
    with reporting():
        from tidemark.dev.registry import start

        print(start(folder, port=port).url)


@registry_app.command("down")
def registry_down(folder: RegistryFolder = REGISTRY) -> None:
    """Stop the registry; its schemas stay."""
    with reporting():
        from tidemark.dev.registry import stop

        if not stop(folder):
            print(f"error: no registry runs in {folder}", file=sys.stderr)
            raise typer.Exit(FAILED)


def _pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise InvalidUsage(f"not a setting: {text!r}", hint="use name=value")
    return name, value
