"""A TCP proxy that fails on demand, in front of any server of a test: Redis, RabbitMQ, a graph.

It runs on a thread of its own, listens on the loopback address, and is switched while connections are open. A switch is
done when the method returns: the new fault applies to all that the client sends from then on.
"""

from __future__ import annotations

import asyncio
import socket
import struct
import threading
from collections.abc import Coroutine
from dataclasses import dataclass, field
from typing import Any, Final, Self, TypeVar
from urllib.parse import urlsplit, urlunsplit

from refresher.embedded import free_port
from tests.support.waiting import MAX_WAIT_SECONDS

T = TypeVar("T")

LOOPBACK: Final = "127.0.0.1"
BACKLOG: Final = 1_000
CHUNK_BYTES: Final = 65_536
RESET_ON_CLOSE: Final = struct.pack("ii", 1, 0)


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault of the connection. The default one lets everything pass.

    ``delay_seconds`` delays each chunk of a reply, ``bytes_per_second`` (0: no bound) is the bandwidth of replies.
    """

    silent: bool = False
    holds_replies: bool = False
    drops_replies: bool = False
    delay_seconds: float = 0.0
    bytes_per_second: float = 0.0


PLAIN: Final = Fault()


@dataclass(eq=False, slots=True)
class Pair:
    """One client's connection and, once it is made, its connection to the server."""

    client: asyncio.StreamWriter
    server: asyncio.StreamWriter | None = None
    is_half_open: bool = False
    tasks: list[asyncio.Task[None]] = field(default_factory=list)

    def end(self, *, orderly: bool) -> None:
        """End both sides now: with FIN, or with RST, which loses data in flight."""
        if not orderly:
            for writer in filter(None, (self.client, self.server)):
                sock = writer.get_extra_info("socket")
                if sock.fileno() >= 0:
                    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_ON_CLOSE)
                writer.transport.abort()
        for task in self.tasks:
            task.cancel()


class FaultProxy:
    """Forwards to one server, unless a fault is set. Thread-safe; ends with `close`."""

    def __init__(self, host: str, port: int) -> None:
        self._target = (host, port)
        self.port = free_port()
        self._fault, self._cut_reply_after = PLAIN, -1
        self._pairs: set[Pair] = set()
        self._listener: socket.socket | None = None
        self._serving: set[asyncio.Task[None]] = set()
        self._changed = asyncio.Event()
        self._accepted = self._requests = 0
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="fault-proxy", daemon=True)

    @classmethod
    def before(cls, url: str) -> Self:
        """Start a proxy in front of the server that ``url`` names (host and port)."""
        parts = urlsplit(url)
        assert parts.hostname
        assert parts.port
        proxy = cls(parts.hostname, parts.port)
        proxy._thread.start()
        proxy._call(proxy._listen())
        return proxy

    def url(self, url: str) -> str:
        """Return ``url`` with this proxy's address instead of the server's."""
        parts = urlsplit(url)
        user = "".join(parts.netloc.rpartition("@")[:2])
        return urlunsplit(parts._replace(netloc=f"{user}{LOOPBACK}:{self.port}"))

    @property
    def accepted(self) -> int:
        """Return how many connections have been accepted so far."""
        return self._accepted

    @property
    def requests(self) -> int:
        """Return how often clients have sent something so far: what was written at once counts once."""
        return self._requests

    @property
    def open_connections(self) -> int:
        """Return how many connections of clients are open."""
        return len(self._pairs)

    def passes(self) -> None:
        """Return to normal: listen, and forward what was held back."""
        self._call(self._switch(PLAIN))

    def hangs(self) -> None:
        """Accept and never answer; established connections go silent in both directions."""
        self._call(self._switch(Fault(silent=True)))

    def holds_replies(self) -> None:
        """Forward requests, and hold every reply until `passes`."""
        self._call(self._switch(Fault(holds_replies=True)))

    def drops_replies(self) -> None:
        """Forward requests, and drop every reply."""
        self._call(self._switch(Fault(drops_replies=True)))

    def slows(self, delay_seconds: float, bytes_per_second: float = 0.0) -> None:
        """Delay each chunk of a reply; ``bytes_per_second`` bounds the bandwidth of replies."""
        self._call(self._switch(Fault(delay_seconds=delay_seconds, bytes_per_second=bytes_per_second)))

    def refuses(self) -> None:
        """Close the port, and reset all connections: the server is down."""
        self._call(self._refuse())

    def cuts(self, *, orderly: bool = False) -> None:
        """End every connection now, by RST, or with ``orderly`` by FIN. New ones are accepted as before."""
        self._call(self._cut(orderly=orderly))

    def goes_half_open(self) -> None:
        """Silently cut the server off from each open connection. New ones are served."""
        self._call(self._half_open())

    def cuts_next_reply_after(self, byte_count: int) -> None:
        """Forward this number of bytes of the next reply, then reset its connection. Once."""
        self._call(self._cut_next(byte_count))

    def leads_to(self, url: str) -> None:
        """Connect new connections to another server. Open ones stay as they are."""
        parts = urlsplit(url)
        assert parts.hostname
        assert parts.port
        self._target = (parts.hostname, parts.port)

    def close(self) -> None:
        """Reset everything, and end the thread."""
        self._call(self._end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(MAX_WAIT_SECONDS)
        self._loop.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _call(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(MAX_WAIT_SECONDS)

    async def _listen(self) -> None:
        if self._listener is None:
            self._listener = socket.create_server((LOOPBACK, self.port), backlog=BACKLOG)
            self._listener.setblocking(False)
            self._loop.add_reader(self._listener, self._accept, self._listener)

    async def _switch(self, fault: Fault) -> None:
        self._fault = fault
        self._changed.set()
        self._changed = asyncio.Event()
        await self._listen()

    async def _refuse(self) -> None:
        if self._listener is not None:
            self._loop.remove_reader(self._listener)
            self._listener.close()
            self._listener = None
        await self._cut(orderly=False)

    async def _end(self) -> None:
        await self._refuse()
        await asyncio.gather(*self._serving, return_exceptions=True)
        await asyncio.gather(*(asyncio.all_tasks() - {asyncio.current_task()}), return_exceptions=True)
        await asyncio.sleep(0)  # closed transports end in the loop's next iteration

    async def _cut(self, *, orderly: bool) -> None:
        tasks = [task for pair in self._pairs for task in pair.tasks]
        for pair in list(self._pairs):
            pair.end(orderly=orderly)
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _half_open(self) -> None:
        for pair in self._pairs:
            pair.is_half_open = True

    async def _cut_next(self, byte_count: int) -> None:
        self._cut_reply_after = byte_count

    def _accept(self, listener: socket.socket) -> None:
        # Without asyncio's own server, which leaks a connection accepted while it is closed (Python 3.11).
        try:
            client, _ = listener.accept()
        except (BlockingIOError, ConnectionAbortedError):
            return
        self._accepted += 1
        task = self._loop.create_task(self._serve(client))
        self._serving.add(task)
        task.add_done_callback(self._serving.discard)

    async def _serve(self, client: socket.socket) -> None:
        reader, writer = await asyncio.open_connection(sock=client)
        if self._listener is None:  # accepted just before the port was closed
            writer.transport.abort()
            return
        pair = Pair(writer)
        self._pairs.add(pair)
        task = asyncio.current_task()
        assert task is not None
        pair.tasks.append(task)
        try:
            await self._until_not_silent()
            back_reader, pair.server = await asyncio.open_connection(*self._target)
            pair.tasks.append(asyncio.create_task(self._pump_replies(back_reader, pair)))
            await self._pump_requests(reader, pair)
        except (OSError, asyncio.CancelledError):
            pass  # either side has closed it, or the connection was cut
        finally:
            self._pairs.discard(pair)
            for pump in pair.tasks[1:]:
                pump.cancel()
            for end in filter(None, (pair.client, pair.server)):
                end.close()

    async def _until_not_silent(self) -> None:
        while self._fault.silent:
            await self._changed.wait()

    async def _pump_requests(self, reader: asyncio.StreamReader, pair: Pair) -> None:
        assert pair.server is not None
        while data := await reader.read(CHUNK_BYTES):
            self._requests += 1
            await self._until_not_silent()
            if not pair.is_half_open:
                pair.server.write(data)
                await pair.server.drain()

    async def _pump_replies(self, reader: asyncio.StreamReader, pair: Pair) -> None:
        try:
            while data := await reader.read(CHUNK_BYTES):
                await self._forward_reply(data, pair)
        except OSError:
            pass  # the client has closed it
        finally:
            pair.client.close()

    async def _forward_reply(self, data: bytes, pair: Pair) -> None:
        while self._fault.silent or self._fault.holds_replies:
            await self._changed.wait()
        if not self._fault.drops_replies and not pair.is_half_open:
            await self._send_reply(data, pair)

    async def _send_reply(self, data: bytes, pair: Pair) -> None:
        if self._cut_reply_after >= 0:
            pair.client.write(data[: self._cut_reply_after])
            self._cut_reply_after = -1
            await pair.client.drain()
            pair.end(orderly=False)
            return
        fault = self._fault
        pause_seconds = fault.delay_seconds
        if fault.bytes_per_second:
            pause_seconds += len(data) / fault.bytes_per_second
        if pause_seconds:
            await asyncio.sleep(pause_seconds)
        pair.client.write(data)
        await pair.client.drain()
