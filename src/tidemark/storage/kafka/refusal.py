"""Why a broker does not let us in: librdkafka says so aside, and to those who ask only that no
broker answers."""

from __future__ import annotations

from confluent_kafka import KafkaError
from confluent_kafka.admin import AdminClient

from tidemark.clock import SYSTEM_CLOCK
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
