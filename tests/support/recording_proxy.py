"""A proxy before Redis that records each request and its reply, and can stop a specific one.

It is a `FaultProxy` that knows where requests and replies begin and end. A reply is recorded when Redis sends it, even
if it never reaches the client. Lease steps go to Redis one at a time, so that the history has them in the order in
which Redis ran them.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

import hiredis

from tests.support.fault_proxy import CHUNK_BYTES, FaultProxy, Pair
from tests.support.history import Exchange, History, name_of
from tests.support.waiting import MAX_WAIT_SECONDS, eventually

_SUBSCRIBES: Final = frozenset({"SUBSCRIBE", "PSUBSCRIBE", "SSUBSCRIBE", "MONITOR"})
_LINE_END = b"\r\n"
_BULK = frozenset(b"$=!")
_AGGREGATES = {ord("*"): 1, ord("~"): 1, ord(">"): 1, ord("%"): 2, ord("|"): 2}  # the number of values of an element
_ATTRIBUTES = ord("|")


class StopPoint(StrEnum):
    """Where an exchange is stopped: before Redis has seen the request, or when it has replied."""

    REQUEST = "request"
    REPLY = "reply"


@dataclass(eq=False)
class Stop:
    """Stops the first exchange that fits, until the test lets it continue. ``met`` is that exchange.

    One that ``cuts`` resets the connection instead: the stopped request or reply never arrives.
    """

    fits: Callable[[Exchange], bool]
    moment: StopPoint
    waits: bool
    cuts: bool
    met: Exchange | None = None
    opened: asyncio.Event = field(default_factory=asyncio.Event)

    def wait(self) -> Exchange:
        """Return once an exchange has been stopped."""
        return eventually(lambda: self.met, f"a {self.moment} to stop")


@dataclass(eq=False, slots=True)
class _Talk:
    """The exchanges in progress on one connection."""

    waiting: deque[Exchange] = field(default_factory=deque)
    is_raw: bool = False
    settled: asyncio.Event = field(default_factory=asyncio.Event)
    is_over: bool = False

    def notify_if_settled(self) -> None:
        """Wake the waiters for the replies of steps, if none is outstanding."""
        if not any(exchange.is_step for exchange in self.waiting):
            self.settled.set()


class RecordingProxy(FaultProxy):
    """A recording proxy; made by `before`, like a `FaultProxy`. ``history`` grows while it runs."""

    def __init__(self, host: str, port: int) -> None:
        super().__init__(host, port)
        self.history = History()
        self._stops: list[Stop] = []
        self._talks: dict[Pair, _Talk] = {}
        self._turn = asyncio.Lock()

    @contextmanager
    def stopping(self, name: str, moment: StopPoint, *, key: str = "", drops: bool = False) -> Iterator[Stop]:
        """Hold the first such exchange until the block ends; then let it pass, or drop it and its connection."""
        stop = self._add(Stop(_fitting(name, key), moment, waits=True, cuts=drops))
        try:
            yield stop
        finally:
            self._call(self._remove(stop))

    def loses(self, name: str, moment: StopPoint, *, key: str = "") -> Stop:
        """Drop the first such request, or its reply, and reset its connection. Once."""
        return self._add(Stop(_fitting(name, key), moment, waits=False, cuts=True))

    def _add(self, stop: Stop) -> Stop:
        self._stops.append(stop)
        return stop

    async def _remove(self, stop: Stop) -> None:
        stop.opened.set()
        with contextlib.suppress(ValueError):
            self._stops.remove(stop)

    def _stop_for(self, exchange: Exchange, moment: StopPoint) -> Stop | None:
        for stop in self._stops:
            # A wait for a message that ends without one has no reply to stop.
            is_there = moment is StopPoint.REQUEST or exchange.reply is not None
            if stop.met is None and stop.moment is moment and is_there and stop.fits(exchange):
                stop.met = exchange
                return stop
        return None

    async def _stopped(self, exchange: Exchange, moment: StopPoint, pair: Pair) -> bool:
        """Hold the exchange until the test continues it; return whether it is dropped."""
        stop = self._stop_for(exchange, moment)
        if stop is None:
            return False
        if stop.waits:
            await stop.opened.wait()
        if stop.cuts:
            pair.end(orderly=False)
        return stop.cuts

    async def _pump_requests(self, reader: asyncio.StreamReader, pair: Pair) -> None:
        talk, buffer = self._talks.setdefault(pair, _Talk()), b""
        try:
            while data := await _read(reader):
                buffer += data
                while (end := frame_end(buffer)) is not None:
                    frame, buffer = buffer[:end], buffer[end:]
                    if not await self._pass_request(frame, pair, talk):
                        return
            # The client has disconnected, killed perhaps. Its last step's reply still goes into the history.
            talk.notify_if_settled()
            await asyncio.wait_for(talk.settled.wait(), MAX_WAIT_SECONDS)
        finally:
            self._talks.pop(pair, None)
            self._abandon(talk)

    async def _pass_request(self, frame: bytes, pair: Pair, talk: _Talk) -> bool:
        command = command_of(frame)
        exchange = Exchange(name_of(command), command)
        if await self._stopped(exchange, StopPoint.REQUEST, pair):
            return False
        await self._until_not_silent()
        if pair.is_half_open:
            return True  # but never forwarded
        if exchange.is_step:
            await self._turn.acquire()
        if talk.is_over:  # the server has closed it: no reply would give the turn back
            if exchange.is_step:
                self._turn.release()
            return False
        talk.is_raw = talk.is_raw or exchange.name in _SUBSCRIBES
        talk.waiting.append(exchange)
        talk.settled.clear()
        exchange.sent_at = time.monotonic()
        self.history.events.append(exchange)
        assert pair.server is not None
        pair.server.write(frame)
        await pair.server.drain()
        return True

    async def _pump_replies(self, reader: asyncio.StreamReader, pair: Pair) -> None:
        talk, buffer = self._talks.setdefault(pair, _Talk()), b""
        try:
            while data := await reader.read(CHUNK_BYTES):
                buffer += data
                while (end := frame_end(buffer)) is not None:
                    frame, buffer = buffer[:end], buffer[end:]
                    await self._pass_reply(frame, pair, talk)
        except OSError:
            pass  # the client has disconnected
        finally:
            self._abandon(talk)
            pair.client.close()

    async def _pass_reply(self, frame: bytes, pair: Pair, talk: _Talk) -> None:
        exchange = self._answered(frame, talk)
        if exchange is None or not await self._stopped(exchange, StopPoint.REPLY, pair):
            await self._forward_reply(frame, pair)

    def _answered(self, frame: bytes, talk: _Talk) -> Exchange | None:
        """Record the reply. Messages pushed on a subscribed connection are not replies."""
        if talk.is_raw or not talk.waiting or frame[:1] == b">":
            return None
        exchange = talk.waiting.popleft()
        exchange.reply, exchange.replied_at = reply_of(frame), time.monotonic()
        if exchange.is_step:
            self._turn.release()
        talk.notify_if_settled()
        return exchange

    def _abandon(self, talk: _Talk) -> None:
        """Expect no more replies on this connection, and let the next connection have its turn."""
        if any(exchange.is_step for exchange in talk.waiting):
            self._turn.release()
        talk.waiting.clear()
        talk.settled.set()
        talk.is_over = True


async def _read(reader: asyncio.StreamReader) -> bytes:
    """Read what a client sends; nothing when it has disconnected in any way."""
    try:
        return await reader.read(CHUNK_BYTES)
    except OSError:
        return b""


def _fitting(name: str, key: str) -> Callable[[Exchange], bool]:
    return lambda exchange: exchange.name == name and key in {"", exchange.key}


def frame_end(data: bytes, start: int = 0) -> int | None:
    """Return where the frame that begins at ``start`` ends; None while it is not whole. RESP2 and RESP3."""
    line = data.find(_LINE_END, start)
    if line < 0:
        return None
    kind, end = data[start], line + len(_LINE_END)
    if kind in _BULK:
        length = int(data[start + 1 : line])
        end += length + len(_LINE_END) if length >= 0 else 0
        return end if end <= len(data) else None
    if kind not in _AGGREGATES:
        return end
    # Attributes come before their value, and are in one frame with it.
    elements = int(data[start + 1 : line]) * _AGGREGATES[kind] + (kind == _ATTRIBUTES)
    for _ in range(elements):
        inner = frame_end(data, end)
        if inner is None:
            return None
        end = inner
    return end


def command_of(frame: bytes) -> tuple[bytes, ...]:
    """Return a request as its words."""
    return tuple(reply_of(frame))


def reply_of(frame: bytes) -> Any:
    """Return the value of a reply; an error is a `hiredis.ReplyError`, returned and not raised."""
    reader = hiredis.Reader()
    reader.feed(frame)
    return reader.gets()
