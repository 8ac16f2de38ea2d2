"""Apache Kafka, one node that is broker and controller (KRaft), on loopback.

    CLIENT       127.0.0.1:port   what `security` asks for; what clients are told
    INTERNAL     127.0.0.1:any    without a password: for the broker itself, and to set it up
    CONTROLLER   127.0.0.1:any    without a password: KRaft

    security     clients need
    none         nothing
    sasl_plain   user and password
    sasl_scram   user and password, which do not cross the wire (SCRAM-SHA-256)
    tls          to trust folder/ca.pem

The jars are those of `make kafka`; TIDEMARK_KAFKA_BROKER_JARS names another folder.
"""

from __future__ import annotations

import base64
import contextlib
import os
import signal
import socket
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import msgspec
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._scram import (
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)
from confluent_kafka.cimpl import NewTopic

from tidemark.dev import process
from tidemark.errors import InvalidUsage, Unavailable
from tidemark.spark.session import find_java

NAME = "broker"
REQUEST_SECONDS = 30.0

PROTOCOLS = {
    "none": "PLAINTEXT",
    "sasl_plain": "SASL_PLAINTEXT",
    "sasl_scram": "SASL_PLAINTEXT",
    "tls": "SSL",
}
MECHANISMS = {"sasl_plain": "PLAIN", "sasl_scram": "SCRAM-SHA-256"}

SMALL = {
    "auto.create.topics.enable": "false",
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "4",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    # After a kill the controller takes the broker for alive that long, and lets no other in.
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "500",
    "log.cleaner.dedupe.buffer.size": str(16 << 20),
    "num.network.threads": "2",
    "num.io.threads": "2",
    "background.threads": "2",
}
"""One node for one developer: nothing is replicated, nobody is waited for."""


class Record(msgspec.Struct, frozen=True):
    """What `broker.json` says of a broker: enough to start it and to reach it."""

    port: int
    internal: int
    controller: int
    security: str
    user: str
    password: str


class Broker:
    """The broker of a folder, whichever process started it."""

    def __init__(self, folder: Path, record: Record):
        self.folder = folder
        self.record = record
        self._process: process.Process | None = None

    @classmethod
    def at(
        cls,
        folder: str | Path,
        *,
        port: int = 9092,
        security: str = "none",
        user: str = "tidemark",
        password: str = "tidemark-secret",
    ) -> Broker:
        """A broker to start in `folder`, which keeps its data; port 0 is any free one."""
        if security not in PROTOCOLS:
            raise InvalidUsage(
                f"no security {security!r}", hint=f"use one of {', '.join(PROTOCOLS)}"
            )
        if any(c in '"\\;=' or not c.isprintable() for c in user + password) or not user:
            raise InvalidUsage("user and password go without quotes, \\, ; and =")
        ports = (port or process.free_port(), process.free_port(), process.free_port())
        return cls(Path(folder).absolute(), Record(*ports, security, user, password))

    @classmethod
    def running(cls, folder: str | Path) -> Broker:
        """The broker that runs in `folder`."""
        folder = Path(folder).absolute()
        if process.alive(folder, NAME) is None:
            raise Unavailable(
                f"no broker runs in {folder}", hint="`tidemark dev kafka up` starts one"
            )
        return cls(folder, msgspec.json.decode((folder / "broker.json").read_bytes(), type=Record))

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.record.port}"

    @property
    def log(self) -> Path:
        return self.folder / f"{NAME}.log"

    @property
    def pid(self) -> int | None:
        return process.alive(self.folder, NAME)

    def client_settings(self) -> dict[str, str]:
        """How a client of confluent-kafka connects."""
        record = self.record
        found = {
            "bootstrap.servers": self.bootstrap,
            "security.protocol": PROTOCOLS[record.security],
        }
        if mechanism := MECHANISMS.get(record.security):
            found |= {
                "sasl.mechanism": mechanism,
                "sasl.username": record.user,
                "sasl.password": record.password,
            }
        if record.security == "tls":
            found["ssl.ca.location"] = str(self.folder / "ca.pem")
        return found

    def start(self, *, preexec_fn: Callable[[], object] | None = None) -> None:
        """Returns when it answers; data of an earlier run in the same folder is there."""
        if self.pid is not None:
            raise Unavailable(
                f"a broker runs in {self.folder} already", hint="`tidemark dev kafka down` stops it"
            )
        process.require_free(self.record.port)
        java, jars = java_program(), _jars()
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        if self.record.security == "tls":
            _certificate(java, self.folder)
        config = self.folder / "server.properties"
        _write(config, "".join(f"{k}={v}\n" for k, v in self._settings().items()))
        self._format(java, jars, config)
        self._process = process.spawn(
            self.folder,
            NAME,
            [
                *(java, "-Xmx512m", "-Xms128m", "-XX:+UseSerialGC", _log_option()),
                *("-cp", f"{jars}/*", "kafka.Kafka", config),
            ],
            preexec_fn=preexec_fn,
        )
        _write(self.folder / "broker.json", msgspec.json.encode(self.record).decode())
        try:
            process.wait_until(self._answers, self._process, self.log)
            if self.record.security == "sasl_scram":
                self._add_scram_user()
        except BaseException:
            self.kill()
            raise

    def stop(self) -> bool:
        return self._end(signal.SIGTERM)

    def kill(self) -> bool:
        """As a power cut would, but for what the operating system still holds."""
        return self._end(signal.SIGKILL)

    def create_topic(
        self, name: str, *, partitions: int = 1, config: Mapping[str, str] | None = None
    ) -> None:
        topic = NewTopic(name, partitions, 1, config=dict(config or {}))
        admin = self._admin()
        with explained(f"topic {name} was not created"):
            admin.create_topics([topic])[name].result(REQUEST_SECONDS)

    def delete_topic(self, name: str) -> None:
        admin = self._admin()
        with explained(f"topic {name} was not deleted"):
            admin.delete_topics([name])[name].result(REQUEST_SECONDS)

    def topics(self) -> dict[str, int]:
        """How many partitions each topic has, Kafka's own left out."""
        with explained("the topics cannot be listed"):
            found = self._admin().list_topics(timeout=REQUEST_SECONDS).topics
        return {
            name: len(topic.partitions)
            for name, topic in sorted(found.items())
            if not name.startswith("__")
        }

    def _admin(self) -> AdminClient:
        """To be kept until it has answered: what is asked of it ends with it."""
        return AdminClient({**self.client_settings(), "log_level": 0})

    def _internal(self) -> AdminClient:
        return AdminClient(
            {"bootstrap.servers": f"127.0.0.1:{self.record.internal}", "log_level": 0}
        )

    def _settings(self) -> dict[str, str]:
        record = self.record
        client = f"CLIENT://{self.bootstrap}"
        internal = f"INTERNAL://127.0.0.1:{record.internal}"
        controller = f"127.0.0.1:{record.controller}"
        protocol = PROTOCOLS[record.security]
        return {
            "process.roles": "broker,controller",
            "node.id": "1",
            "controller.quorum.voters": f"1@{controller}",
            "controller.listener.names": "CONTROLLER",
            "inter.broker.listener.name": "INTERNAL",
            "listeners": f"{client},{internal},CONTROLLER://{controller}",
            "advertised.listeners": f"{client},{internal}",
            "listener.security.protocol.map": (
                f"CLIENT:{protocol},INTERNAL:PLAINTEXT,CONTROLLER:PLAINTEXT"
            ),
            "log.dirs": str(self.folder / "data"),
            **SMALL,
            **self._security_settings(),
        }

    def _security_settings(self) -> dict[str, str]:
        record, modules = self.record, "org.apache.kafka.common.security"
        match record.security:
            case "sasl_plain":
                login = f'{modules}.plain.PlainLoginModule required user_{record.user}="{record.password}";'
                found = {"sasl.enabled.mechanisms": "PLAIN", "plain.sasl.jaas.config": login}
            case "sasl_scram":
                login = f"{modules}.scram.ScramLoginModule required;"
                found = {
                    "sasl.enabled.mechanisms": "SCRAM-SHA-256",
                    "scram-sha-256.sasl.jaas.config": login,
                }
            case "tls":
                found = {
                    "ssl.keystore.type": "PKCS12",
                    "ssl.keystore.location": str(self.folder / "keystore.p12"),
                    "ssl.keystore.password": _keystore_password(self.folder),
                }
            case _:
                found = {}
        return {f"listener.name.client.{name}": value for name, value in found.items()}

    def _format(self, java: Path, jars: Path, config: Path) -> None:
        if (self.folder / "data" / "meta.properties").exists():
            return
        cluster = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        command = [
            *(java, "-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", _log_option()),
            *("-cp", f"{jars}/*", "kafka.tools.StorageTool", "format"),
            # Joined by =, as every 64th id begins with a dash.
            *(f"--cluster-id={cluster}", "--config", config, "--ignore-formatted"),
        ]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise Unavailable(f"Kafka cannot use {self.folder / 'data'}: {done.stderr.strip()}")

    def _answers(self) -> bool:
        try:
            socket.create_connection(("127.0.0.1", self.record.internal), 1).close()
            return bool(self._internal().list_topics(timeout=2).brokers)
        except (OSError, KafkaException):
            return False

    def _add_scram_user(self) -> None:
        user = UserScramCredentialUpsertion(
            self.record.user,
            ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096),
            self.record.password.encode(),
        )
        admin = self._internal()
        with explained("the user was not created"):
            for done in admin.alter_user_scram_credentials([user]).values():
                done.result(REQUEST_SECONDS)

    def _end(self, how: signal.Signals) -> bool:
        ended = process.stop(self.folder, NAME, how=how)
        if self._process is not None:
            self._process.wait()
            self._process = None
        return ended


def java_program() -> Path:
    found = Path(find_java())
    return found if found.is_file() else found / "bin" / "java"


@contextlib.contextmanager
def explained(what: str) -> Iterator[None]:
    """What a client says of its trouble, as an error of ours."""
    try:
        yield
    except KafkaException as error:
        cause = error.args[0]
        said = cause.str() if isinstance(cause, KafkaError) else str(cause)
        raise Unavailable(f"{what}: {said}") from None


def _jars() -> Path:
    folder = Path(os.environ.get("TIDEMARK_KAFKA_BROKER_JARS") or Path(sys.prefix, "kafka"))
    if not any(folder.glob("kafka_*.jar")):
        raise Unavailable(f"Kafka is not here: no jars in {folder}", hint="run `make kafka`")
    return folder


def _log_option() -> str:
    return f"-Dlog4j2.configurationFile={Path(__file__).with_name('log4j2.properties').as_uri()}"


def _write(path: Path, text: str) -> None:
    """In one step, and for nobody else to read: there is a password in it."""
    new = path.with_name(f"{path.name}.new")
    new.unlink(missing_ok=True)
    with open(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(text)
    new.replace(path)


def _keystore_password(folder: Path) -> str:
    path = folder / "keystore.password"
    if not path.exists():
        _write(path, uuid.uuid4().hex)
    return path.read_text()


def _certificate(java: Path, folder: Path) -> None:
    """A key and a certificate that signs itself, by the keytool that is in every Java."""
    authority, keystore = folder / "ca.pem", folder / "keystore.p12"
    if authority.exists():
        return
    keystore.unlink(missing_ok=True)
    store = (
        "-keystore",
        keystore,
        "-storetype",
        "PKCS12",
        "-storepass",
        _keystore_password(folder),
    )
    names = ("-dname", "CN=localhost", "-ext", "SAN=IP:127.0.0.1,DNS:localhost")
    key = ("-keyalg", "EC", "-groupname", "secp256r1", "-validity", "3650", "-alias", "kafka")
    new = folder / "ca.pem.new"
    for arguments in (
        ("-genkeypair", *key, *names, *store),
        ("-exportcert", "-rfc", "-alias", "kafka", "-file", new, *store),
    ):
        command = [java, "-m", "java.base/sun.security.tools.keytool.Main", *arguments]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise Unavailable(f"keytool made no certificate: {done.stdout.strip()}")
    new.replace(authority)
