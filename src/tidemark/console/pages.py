"""The files of the console as HTTP responses: whole in memory, and checked by the browser each time
(an ETag), so that a new version of the server is a new console at once."""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable
from importlib.resources import files
from importlib.resources.abc import Traversable

from aiohttp import web

POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self'",
        "connect-src 'self'",
        "form-action 'none'",
        "base-uri 'none'",
        "frame-ancestors 'none'",
    )
)
"""Nothing of another host, nothing inline, in nobody's frame."""

_TYPES = {
    "html": "text/html",
    "css": "text/css",
    "js": "text/javascript",
    "svg": "image/svg+xml",
    "txt": "text/plain",
}

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def routes() -> list[web.RouteDef]:
    """`/` is the page; what it loads is under `/console`."""
    found = {
        "/" if path == "index.html" else f"/console/{path}": (path, data) for path, data in _files()
    }
    return [web.get(url, _handler(path, data)) for url, (path, data) in found.items()]


def _files(folder: Traversable | None = None, above: str = "") -> list[tuple[str, bytes]]:
    found: list[tuple[str, bytes]] = []
    for each in sorted(
        (folder or files("tidemark.console") / "static").iterdir(), key=lambda e: e.name
    ):
        if each.is_dir():
            found += _files(each, f"{above}{each.name}/")
        else:
            found.append((above + each.name, each.read_bytes()))
    return found


def _handler(path: str, data: bytes) -> Handler:
    etag = hashlib.sha256(data).hexdigest()[:16]
    headers = {
        "Cache-Control": "no-cache",
        "Content-Security-Policy": POLICY,
        "Referrer-Policy": "no-referrer",
        "ETag": f'"{etag}"',
    }
    content_type = _TYPES[path.rpartition(".")[2]]

    async def respond(http: web.Request) -> web.Response:
        if any(each.value == etag for each in http.if_none_match or ()):
            return web.Response(status=304, headers=headers)
        return web.Response(body=data, headers=headers, content_type=content_type, charset="utf-8")

    return respond
