"""A client of the server's websockets."""

from __future__ import annotations

from typing import Any

import aiohttp
import msgspec

PATIENCE = 240.0
"""Seconds for a message to come: generous, for busy machines."""


class Talk:
    def __init__(self, socket: aiohttp.ClientWebSocketResponse):
        self.socket = socket

    async def send(self, message: object) -> None:
        await self.socket.send_str(msgspec.json.encode(message).decode())

    async def receive(self) -> tuple[str, Any]:
        message = msgspec.json.decode(await self.socket.receive_str(timeout=PATIENCE))
        return message["type"], message["payload"]

    async def until(self, type_: str) -> list[tuple[str, Any]]:
        """Messages up to and with one of that type."""
        found = [await self.receive()]
        while found[-1][0] != type_:
            found.append(await self.receive())
        return found

    async def ask(self, message: object) -> list[tuple[str, Any]]:
        await self.send(message)
        return await self.until("ReadyForQuery")
