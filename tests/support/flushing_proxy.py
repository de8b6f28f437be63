"""A proxy that has Redis forget all scripts before each command: what a SCRIPT FLUSH in a loop does by luck."""

from __future__ import annotations

import asyncio
from typing import Any, Self

from api_client.transport.wire import pack
from refresher.embedded import RedisServer
from tests.support.fault_proxy import Pair
from tests.support.recording_proxy import RecordingProxy


class FlushingProxy(RecordingProxy):
    """Made by `before_server`. Each command waits for the reply to the one before it; then the scripts are gone."""

    _flush = b""

    @classmethod
    def before_server(cls, server: RedisServer) -> Self:
        """Start a proxy in front of an embedded server."""
        proxy = cls.before(server.url(0))
        proxy._flush = pack("AUTH", server.password) + pack("SCRIPT", "FLUSH")
        return proxy

    async def _pass_request(self, frame: bytes, pair: Pair, talk: Any) -> bool:
        if talk.waiting and not talk.is_raw:
            await talk.settled.wait()
        await self._forget_scripts()
        return await super()._pass_request(frame, pair, talk)

    async def _forget_scripts(self) -> None:
        reader, writer = await asyncio.open_connection(*self._target)
        writer.write(self._flush)
        for _ in range(2):
            assert await reader.readline() == b"+OK\r\n"
        writer.close()
        await writer.wait_closed()
