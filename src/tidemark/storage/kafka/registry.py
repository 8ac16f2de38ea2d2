"""What is asked of a schema registry (Confluent's REST interface), by the driver alone.

    by_id      the schema that messages name by an id; ids never change, so it is asked once
    version    a subject's schema, the latest or a given one: what a source pins when it is made

A registry that does not answer, or not with what was asked for, is `Unavailable`: try again. A
schema that is not there, or that we do not take (one with references), is refused.
"""

from __future__ import annotations

import base64
import threading
import urllib.error
import urllib.request
from typing import Any
from urllib.parse import quote, urlsplit

import msgspec

from tidemark.errors import InvalidUsage, Unavailable, Unsupported
from tidemark.storage.kafka.spec import RegistryConnection

SECONDS = 10.0
"""How long a registry has to answer."""

_NOT_FOUND = 404
_DENIED = (401, 403)


class Schema(msgspec.Struct, frozen=True):
    """A registered schema; `kind` is AVRO, PROTOBUF or JSON."""

    id: int
    kind: str
    text: str


class Registry:
    """A client; threads may share it."""

    def __init__(self, connection: RegistryConnection, *, seconds: float = SECONDS):
        if urlsplit(connection.url).scheme not in ("http", "https"):
            raise InvalidUsage(f"a registry's address is http:// or https://, not {connection.url}")
        self._connection = connection
        self._seconds = seconds
        self._known: dict[int, Schema] = {}
        self._lock = threading.Lock()

    def by_id(self, id_: int) -> Schema:
        with self._lock:
            known = self._known.get(id_)
        if known is not None:
            return known
        schema = self._schema(self._get(f"/schemas/ids/{id_}", f"schema {id_}"), id_)
        with self._lock:
            self._known[id_] = schema
        return schema

    def avro(self, id_: int) -> str:
        """The text of an Avro schema."""
        found = self.by_id(id_)
        if found.kind != "AVRO":
            raise InvalidUsage(f"schema {id_} of the registry is one of {found.kind}, not of Avro")
        return found.text

    def version(self, subject: str, version: int | None = None) -> Schema:
        which = "latest" if version is None else str(version)
        path = f"/subjects/{quote(subject, safe='')}/versions/{which}"
        answer = self._get(path, f'version {which} of subject "{subject}"')
        if not isinstance(answer.get("id"), int):
            raise self._unusable("no id of the schema")
        return self._schema(answer, answer["id"])

    def _schema(self, answer: dict[str, Any], id_: int) -> Schema:
        text = answer.get("schema")
        if not isinstance(text, str):
            raise self._unusable("no schema")
        if answer.get("references"):
            raise Unsupported(
                f"schema {id_} refers to other schemas of the registry",
                hint="register it with everything it needs in one schema",
            )
        return Schema(id_, answer.get("schemaType") or "AVRO", text)

    def _get(self, path: str, what: str) -> dict[str, Any]:
        connection = self._connection
        request = urllib.request.Request(connection.url.rstrip("/") + path)
        request.add_header("Accept", "application/vnd.schemaregistry.v1+json, application/json")
        if connection.user is not None:
            pair = f"{connection.user}:{connection.password or ''}".encode()
            request.add_header("Authorization", "Basic " + base64.b64encode(pair).decode())
        try:
            with urllib.request.urlopen(request, timeout=self._seconds) as response:
                answer = msgspec.json.decode(response.read())
        except urllib.error.HTTPError as error:
            if error.code == _NOT_FOUND:
                raise InvalidUsage(f"the registry at {connection.url} has no {what}") from None
            if error.code in _DENIED:
                raise Unavailable(
                    f"the registry at {connection.url} does not let us in ({error.code})",
                    hint="look at the connection's user and password",
                ) from None
            raise self._unusable(f"status {error.code}") from None
        except msgspec.DecodeError:
            raise self._unusable("no JSON") from None
        except OSError as error:
            reason = getattr(error, "reason", error)
            raise Unavailable(
                f"the registry at {connection.url} does not answer: {reason}",
                hint="look whether it runs and whether this is its address",
            ) from None
        if not isinstance(answer, dict):
            raise self._unusable("no object")
        return answer

    def _unusable(self, said: str) -> Unavailable:
        return Unavailable(
            f"the registry at {self._connection.url} answered with {said}",
            hint="look whether this is the address of its REST interface",
        )
