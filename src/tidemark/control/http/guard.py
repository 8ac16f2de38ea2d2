"""Who may ask at all: no web site but our own may, through the browser of somebody who may.

A browser lets any page send requests here; it only hides the answers. So a request counts only if

    its Host is a name of this machine     else it was meant for a site whose name was made to
                                           lead here (DNS rebinding)
    its Origin, if any, is that Host       else another site's page sent it
    it is JSON, if it is a POST            which a page of another site cannot send unasked

Programs that are no browsers send no Origin, and are not concerned. Those that post to webhooks
may have any name for this machine.
"""

from __future__ import annotations

import re

from aiohttp import web

from tidemark.errors import SqlError

LOOPBACK = ("127.0.0.1", "localhost", "::1")

_HOST = re.compile(r"(?:\[([0-9a-f:]+)\]|([a-z0-9.-]+))(?::\d+)?")


def check(http: web.Request, names: tuple[str, ...]) -> None:
    """Refuse what a foreign page may have sent; `names` are what this machine is called, none
    where passwords are asked for: a page does not know them."""
    host = http.headers.get("Host", names[0] if names else "").lower()
    meant = _HOST.fullmatch(host)
    if names and (meant is None or (meant[1] or meant[2]) not in names):
        raise SqlError(
            f"this server is not {host!r}",
            hint=f"use http://{_own(names)} and the port that the server has printed; where passwords "
            "are asked for, any name will do: ALTER ROLE tidemark PASSWORD '...'",
            sqlstate="42501",
        )
    origin = http.headers.get("Origin")
    if origin is not None and origin.lower().partition("://")[2] != host:
        raise SqlError(f"pages of {origin!r} may not use this server", sqlstate="42501")


def _own(names: tuple[str, ...]) -> str:
    """One that can be typed."""
    return next(name for name in names if name not in ("0.0.0.0", "::"))


def check_machine(http: web.Request, names: tuple[str, ...]) -> None:
    """For what other services post: by whatever name they reach us, as long as no page does it.
    Browsers say the Origin of every POST."""
    if "Origin" in http.headers:
        check(http, names)


def check_json(http: web.Request) -> None:
    if http.content_type != "application/json":
        raise web.HTTPUnsupportedMediaType(
            reason="send JSON, with the header Content-Type: application/json"
        )
