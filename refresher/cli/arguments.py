"""Arguments shared by several commands, and the opening of their cache."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Annotated, Any, Final, TypeAlias
from urllib.parse import urlsplit

import redis
import typer
from redis.exceptions import RedisError

from api_client.config.durations import seconds
from api_client.config.environment import without_password as shown_url
from api_client.config.settings import SharedSettings
from api_client.errors import CacheUnavailable, InvalidQuery
from api_client.protocol.keys import CacheKey, make_key
from api_client.transport.redis_py import connect
from api_client.transport.wire import reason

TIMEOUT_SECONDS: Final = 2.0

QueryName: TypeAlias = Annotated[str, typer.Argument(metavar="QUERY", help="The query's name.")]
ParamList: TypeAlias = Annotated[
    list[str] | None,
    typer.Argument(metavar="NAME=VALUE|JSON", help="Its params: person_id=42 name=Ada, or one JSON object."),
]
Json: TypeAlias = Annotated[bool, typer.Option("--json", help="As JSON; durations in seconds.")]
Wait: TypeAlias = Annotated[
    str, typer.Option(metavar="DURATION", help="How long to wait for the result; 0: not at all.")
]
Version: TypeAlias = Annotated[int, typer.Option(min=1, help="The version that readers read.")]


def key_of(settings: SharedSettings, query: str, params: list[str] | None, version: int) -> CacheKey:
    """Return the key of a query and params.

    Raises:
        typer.BadParameter: the query, params or version are invalid.
    """
    with usage():
        return make_key(settings.namespace, query, params_of(params or []), version)


@contextmanager
def usage(option: str | None = None) -> Iterator[None]:
    """Turn a refused value into wrong usage, with the name of ``option``.

    Raises:
        typer.BadParameter: the value was refused.
    """
    try:
        yield
    except (ValueError, InvalidQuery) as error:
        raise typer.BadParameter(str(error), param_hint=option) from None


@contextmanager
def opened_cache(url: str) -> Iterator[redis.Redis]:
    """Open CACHE_REDIS_URL.

    Raises:
        CacheUnavailable: the cache can't be used; the message names its URL without the password.
    """
    try:
        with closing(connect(url, timeout_seconds=TIMEOUT_SECONDS)) as client:
            yield client
    except (RedisError, OSError) as error:
        shown = shown_url(url)
        raise CacheUnavailable(f"the cache at CACHE_REDIS_URL={shown} can't be used: {reason(error, url)}") from error


def without_password(url: str | None) -> str | None:
    """Return a URL, refusing a password on the command line, where everyone on the machine can read it.

    Raises:
        typer.BadParameter: it contains a password, or is not a URL.
    """
    try:
        has_password = url is not None and (urlsplit(url).password is not None or "password=" in urlsplit(url).query)
    except ValueError as error:
        raise typer.BadParameter("not a URL") from error
    if has_password:
        raise typer.BadParameter("no password on the command line: put it into the environment, see --help")
    return url


def duration_of(text: str, option: str) -> float:
    """Return a duration in seconds.

    Raises:
        typer.BadParameter: the text is not a duration.
    """
    with usage(option):
        return seconds(text)


def params_of(arguments: list[str]) -> dict[str, Any]:
    """Parse params given as ``name=value``, with JSON or otherwise text as value, or as whole JSON objects.

    Raises:
        typer.BadParameter: an argument is neither of these, or repeats a name.
    """
    params: dict[str, Any] = {}
    for argument in arguments:
        given = _object(argument) if argument.lstrip().startswith("{") else _pair(argument)
        if repeated := params.keys() & given.keys():
            raise typer.BadParameter(f"{min(repeated)!r} is given twice")
        params |= given
    return params


def _pair(argument: str) -> dict[str, Any]:
    name, equals, value = argument.partition("=")
    if not equals:
        raise typer.BadParameter(f"{argument!r}: expected NAME=VALUE, or a JSON object")
    try:
        return {name: json.loads(value)}
    except (ValueError, RecursionError):
        return {name: value}


def _object(argument: str) -> dict[str, Any]:
    try:
        decoded = json.loads(argument)
    except (ValueError, RecursionError) as error:
        raise typer.BadParameter(f"not JSON: {error}") from None
    if not isinstance(decoded, dict):
        raise typer.BadParameter("expected NAME=VALUE, or a JSON object")
    return decoded
