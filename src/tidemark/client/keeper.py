"""`python -m tidemark.client.keeper DATA SPARK_MASTER`: a server that ends when its parent does.

The parent holds the other end of stdin. However it ends, even by SIGKILL, the system closes that,
and this process stops as if it had been told to: nothing keeps running that nobody knows of. On
stdout it says one thing, in JSON: where it listens, or why it does not.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
from pathlib import Path

import msgspec

from tidemark.errors import TidemarkError


class Listening(msgspec.Struct, frozen=True, tag=True):
    host: str
    port: int


class Refused(msgspec.Struct, frozen=True, tag=True):
    message: str
    hint: str | None
    sqlstate: str


Word = Listening | Refused


def _follow() -> None:
    while os.read(sys.stdin.fileno(), 1024):
        pass
    os.kill(os.getpid(), signal.SIGTERM)


def _say(word: Word) -> None:
    print(msgspec.json.encode(word).decode(), flush=True)


def main() -> None:
    from tidemark.control.server import Options, Ready, serve
    from tidemark.logs import configure_logging

    data, spark_master = sys.argv[1:]
    configure_logging()
    key = os.environ.get("TIDEMARK_SECRETS_KEY")
    options = Options(
        Path(data),
        "127.0.0.1:0",
        spark_master=spark_master,
        secrets_key=Path(key) if key else None,
        http_listen=None,
    )

    def ready(at: Ready) -> None:
        _say(Listening(at.host, at.port))
        # Not before: until now there was nobody to hear the signal.
        threading.Thread(target=_follow, daemon=True).start()

    try:
        asyncio.run(serve(options, ready))
    except TidemarkError as error:
        _say(Refused(error.message, error.hint, error.sqlstate))
        sys.stdout.flush()
        os._exit(1)


if __name__ == "__main__":
    main()
