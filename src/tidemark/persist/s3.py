"""S3Blob: parts in an object store that speaks S3.

    s3://bucket/some/prefix?region=eu-central-1
    s3://bucket/some/prefix?endpoint=http://127.0.0.1:9000&region=us-east-1

Credentials come from the usual AWS variables, a web identity, the container or the instance;
with AWS_PROFILE set, from that profile (which needs boto3). With an endpoint, given here or by
AWS_ENDPOINT_URL, buckets are addressed by path, as most servers other than AWS want it.

Requests that fail are repeated here and not by the client library: what is Determinate for the
last attempt (connection refused, say) is not for the call if an earlier one was left unanswered.
"""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any, TypeVar
from urllib.parse import parse_qsl, unquote, urlsplit

import obstore
import pyarrow as pa
from obstore.exceptions import BaseError, PermissionDeniedError, UnauthenticatedError
from obstore.store import S3Store

from tidemark.clock import SYSTEM_CLOCK, Clock
from tidemark.errors import Determinate, Indeterminate, InvalidUsage
from tidemark.persist.blob import check_key, split_prefix

T = TypeVar("T")

ATTEMPTS = 4
FIRST_PAUSE = 0.1
NO_ATTEMPT_AFTER = 15.0
"""Seconds from the start of a call after which it is not tried again."""

CONNECT_TIMEOUT = timedelta(seconds=3)
SILENCE_TIMEOUT = timedelta(seconds=10)
REQUEST_TIMEOUT = timedelta(seconds=60)

_HINT = (
    "use s3://bucket/prefix?endpoint=http://host:port&region=name; all but the bucket is optional"
)


class S3Blob:
    def __init__(
        self,
        bucket: str,
        prefix: str = "",
        *,
        endpoint: str | None = None,
        region: str | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ):
        self.bucket = bucket
        self.prefix = prefix.strip("/")
        for variable in ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"):
            endpoint = endpoint or os.environ.get(variable)
        self._endpoint = endpoint
        self._clock = clock
        config: dict[str, Any] = {"disable_bulk_delete": True}  # Not every server has that call.
        if region is not None:
            config["region"] = region
        elif not os.environ.get("AWS_REGION") and not os.environ.get("AWS_DEFAULT_REGION"):
            config["region"] = "us-east-1"
        if endpoint is not None:
            config |= {"endpoint": endpoint, "aws_endpoint_url_s3": endpoint}
            config |= {"virtual_hosted_style_request": False}
        try:
            self._store = S3Store(
                bucket,
                prefix=self.prefix or None,
                config=config,  # pyright: ignore[reportArgumentType]
                client_options={
                    "allow_http": endpoint is not None and endpoint.startswith("http://"),
                    "connect_timeout": CONNECT_TIMEOUT,
                    "read_timeout": SILENCE_TIMEOUT,
                    "timeout": REQUEST_TIMEOUT,
                },
                retry_config={"max_retries": 0},
                credential_provider=_profile_credentials(),
            )
        except BaseError as error:
            raise InvalidUsage(f"cannot open {self}: {_first_line(error)}", hint=_HINT) from error

    @classmethod
    def from_uri(cls, uri: str, *, clock: Clock = SYSTEM_CLOCK) -> S3Blob:
        parts = urlsplit(uri, allow_fragments=False)
        options = dict(parse_qsl(parts.query, keep_blank_values=True))
        endpoint, region = options.pop("endpoint", None), options.pop("region", None)
        if not parts.netloc or options or endpoint == "" or region == "":
            raise InvalidUsage(f"cannot open blob {uri!r}", hint=_HINT)
        prefix = unquote(parts.path).strip("/")
        if prefix:
            check_key(prefix)
        return cls(parts.netloc, prefix, endpoint=endpoint, region=region, clock=clock)

    def __str__(self) -> str:
        at = f" at {self._endpoint}" if self._endpoint else ""
        return f"s3://{self.bucket}/{self.prefix}{at}"

    def get(self, key: str) -> bytes | None:
        check_key(key)
        return self._read(f"read {key}", lambda: bytes(obstore.get(self._store, key).bytes()))

    def open(self, key: str) -> pa.NativeFile | None:
        check_key(key)
        size = self._size(key)
        if size is None:
            return None

        def read(start: int, length: int) -> pa.Buffer:
            ranged = self._read(
                f"read {key}",
                lambda: pa.py_buffer(
                    obstore.get_range(self._store, key, start=start, length=length)
                ),
            )
            if ranged is None:
                raise Determinate(f"{key} was deleted from {self} while it was read")
            return ranged

        return pa.PythonFile(_Ranges(read, size), mode="r")

    def set(self, key: str, value: bytes | memoryview) -> None:
        check_key(key)
        # Above a few MiB this becomes a multipart upload, which appears whole or not at all.
        self._call(f"write {key}", lambda: obstore.put(self._store, key, bytes(value)))

    def delete(self, key: str) -> int | None:
        check_key(key)
        size = self._size(key)
        if size is None:
            return None
        self._call(f"delete {key}", lambda: obstore.delete(self._store, key))
        return size

    def list(self, prefix: str = "") -> Iterator[tuple[str, int]]:
        folder = split_prefix(prefix)
        found = self._read(
            f"list {prefix}", lambda: obstore.list(self._store, folder or None).collect()
        )
        for meta in found or ():
            if meta["path"].startswith(prefix):
                yield meta["path"], meta["size"]

    def uri(self, key: str) -> str:
        check_key(key)
        return "s3a://" + "/".join(filter(None, (self.bucket, self.prefix, key)))

    def _size(self, key: str) -> int | None:
        return self._read(f"look at {key}", lambda: obstore.head(self._store, key)["size"])

    def _read(self, what: str, action: Callable[[], T]) -> T | None:
        """None if there is no such object; whatever fails is Determinate, as nothing happens."""
        try:
            return self._call(what, action)
        except FileNotFoundError:
            return None
        except Indeterminate as error:
            raise Determinate(error.message, hint=error.hint) from error

    def _call(self, what: str, action: Callable[[], T]) -> T:
        begun = self._clock.monotonic()
        pause, unsure = FIRST_PAUSE, False
        for attempt in range(1, ATTEMPTS + 1):
            try:
                return action()
            except (BaseError, FileNotFoundError, OSError) as error:
                sure, again, reason, hint = self._judged(error)
                if reason is None:
                    raise  # The object is not there: the caller knows what that means.
                unsure |= not sure
                late = self._clock.monotonic() - begun > NO_ATTEMPT_AFTER
                if not again or attempt == ATTEMPTS or late:
                    kind = Indeterminate if unsure else Determinate
                    raise kind(f"cannot {what} in {self}: {reason}", hint=hint) from error
                self._clock.sleep(pause)
                pause *= 2
        raise AssertionError("unreachable")

    def _judged(self, error: Exception) -> tuple[bool, bool, str | None, str | None]:
        """Whether it surely did not happen, may be tried again, why it failed, what to do."""
        text = str(error)
        if "NoSuchBucket" in text:
            hint = f"create the bucket {self.bucket!r} or correct its name"
            return True, False, "there is no such bucket", hint
        if isinstance(error, FileNotFoundError):
            return True, False, None, None
        denied = isinstance(error, PermissionDeniedError | UnauthenticatedError)
        if denied or "status code: 403" in text or "status code: 401" in text:
            hint = "check AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and what they may do"
            return True, False, "access denied", hint
        if "169.254." in text or "credential" in text.lower():
            hint = "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
            return True, False, f"no credentials: {_first_line(error)}", hint
        if "kind: Connect" in text:
            hint = "check the endpoint and the network" if self._endpoint else "check the network"
            return True, True, "nothing answers there", hint
        if "status code: 4" in text and "status code: 408" not in text:
            again = "status code: 429" in text
            return True, again, _first_line(error), None
        return False, True, _first_line(error), None


class _Ranges(io.RawIOBase):
    """A file whose every read is one range request; Arrow asks for whole column chunks."""

    def __init__(self, read: Callable[[int, int], pa.Buffer], size: int):
        self._read = read
        self._size = size
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        start = {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self._size}[whence]
        self._at = min(max(start + offset, 0), self._size)
        return self._at

    def size(self) -> int:
        return self._size

    def read(self, size: int | None = -1, /) -> bytes:
        return self.read_buffer(size).to_pybytes()

    def read_buffer(self, size: int | None = -1, /) -> pa.Buffer:
        """What Arrow calls, where it can: `read` without a copy."""
        left = self._size - self._at
        length = left if size is None or size < 0 else min(size, left)
        if not length:
            return pa.py_buffer(b"")
        found = self._read(self._at, length)
        self._at += length
        return found


def _profile_credentials() -> Any:
    profile = os.environ.get("AWS_PROFILE")
    if not profile or os.environ.get("AWS_ACCESS_KEY_ID"):
        return None
    try:
        from obstore.auth.boto3 import Boto3CredentialProvider
    except ImportError as error:
        raise InvalidUsage(
            f"AWS_PROFILE is {profile!r}, but profiles are read by boto3, which is not installed",
            hint="install boto3, or set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY",
        ) from error
    return Boto3CredentialProvider()


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0]
