"""Why a broker does not let us in: librdkafka says so aside, and to those who ask only that no
broker answers."""

from __future__ import annotations

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from tidemark.clock import SYSTEM_CLOCK
from tidemark.errors import TidemarkError, Unavailable
from tidemark.storage.kafka.broker import KafkaBroker
from tidemark.storage.kafka.spec import KafkaConnection

SECONDS = 3.0

SILENCES = (
    KafkaError._TRANSPORT,
    KafkaError._TIMED_OUT,
    KafkaError._ALL_BROKERS_DOWN,
)
REFUSALS = (
    KafkaError._AUTHENTICATION,
    KafkaError._SSL,
    KafkaError.SASL_AUTHENTICATION_FAILED,
)


def refusal(connection: KafkaConnection) -> str | None:
    """What a new connection is told if it is turned away; None if it is not, or nobody answers."""
    said: list[KafkaError] = []
    client = AdminClient(
        {
            "bootstrap.servers": connection.brokers,
            "log_level": 0,
            **connection.settings,
            **connection.secrets,
            "error_cb": said.append,  # type: ignore[dict-item]
        }
    )
    last = SYSTEM_CLOCK.monotonic() + SECONDS
    while SYSTEM_CLOCK.monotonic() < last:
        client.poll(0.1)
        for error in said:
            if error.code() in REFUSALS:
                return error.str().partition(" (after ")[0]
    return None


class ExplainingBroker(KafkaBroker):
    """A topic of a real broker, with the reason if it does not let us in."""

    def __init__(self, connection: KafkaConnection, topic: str, *, group: str = "tidemark"):
        try:
            super().__init__(connection, topic, group=group)
        except KafkaException as error:
            raise Unavailable(
                f"the connection cannot be used: {error.args[0].str()}",
                hint="look at its options, secrets and certificates",
            ) from None

    def _failed(self, error: KafkaError) -> TidemarkError:
        found = super()._failed(error)
        silent = error.code() in SILENCES
        if silent and (why := refusal(self._connection)) is not None:
            return Unavailable(
                f"Kafka at {self._connection.brokers} does not let us in: {why}",
                hint="look at the connection's user, secrets and certificates",
            )
        return found
