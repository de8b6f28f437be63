"""What connections are called at Redis (CLIENT LIST), so that one can see whose they are, and of which release."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, Final, NamedTuple

from redis.exceptions import ResponseError

from api_client._version import __version__
from api_client.process_names import this_process

READER: Final = "reader"
WORKER: Final = "refresher"


class NamedConnection(NamedTuple):
    """What a name says: who connected, of which release, and the process, as lease records name it."""

    who: str
    version: str
    process: str


def read_name(name: str) -> NamedConnection | None:
    """Return what a connection's name says; None: it is not one of ours."""
    parts = name.split("/", 2)
    return (
        NamedConnection(*parts) if len(parts) == len(NamedConnection._fields) and parts[0] in {READER, WORKER} else None
    )


def giving_name(who: str) -> Callable[[Any], None]:
    """Return what begins a connection of redis-py as it would itself, and names it unless its URL does.

    A server that refuses names is used all the same.
    """

    def begin(connection: Any) -> None:
        connection.on_connect()
        if not connection.client_name:
            connection.send_command(*_command(who))
            with suppress(ResponseError):
                connection.read_response()

    return begin


def giving_name_async(who: str) -> Callable[[Any], Awaitable[None]]:
    """As `giving_name`, of redis.asyncio."""

    async def begin(connection: Any) -> None:
        await connection.on_connect()
        if not connection.client_name:
            await connection.send_command(*_command(who))
            with suppress(ResponseError):
                await connection.read_response()

    return begin


def _command(who: str) -> tuple[str, ...]:
    # At each connecting: a process that was forked connects anew.
    return "CLIENT", "SETNAME", f"{who}/{__version__}/{this_process()}"
