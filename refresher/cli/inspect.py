"""``refresher inspect``."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Annotated, Any, Final

import typer

from api_client.config.settings import ReaderSettings
from api_client.errors import InvalidQuery
from api_client.explain import duration
from api_client.protocol.keys import CacheKey, check_query_name
from refresher.cli.arguments import ParamList, Version, key_of, opened_cache
from refresher.cli.output import as_json, plain, time_of
from refresher.cli.permissions import permissions_named
from refresher.ops.inspect import MIN_DIGEST, Inspection, find_by_digest, inspect_key
from refresher.ops.permissions import Permissions
from refresher.ops.scan import KeyNames

NAME_COLUMNS: Final = 17
_DIGITS: Final = re.compile(rf"[0-9a-f]{{{MIN_DIGEST},32}}", re.ASCII)
_TIMES: Final = frozenset(
    {"read_started", "fetched", "soft_expiry", "until", "limit", "claimed_at", "published", "since"}
)
_SECONDS: Final = frozenset({"ttl", "delta", "delta_deviation", "run", "run_deviation"})


def inspect(
    name: Annotated[str, typer.Argument(metavar="KEY|QUERY", help="A key's name in Redis, or a query's name.")],
    params: ParamList = None,
    version: Version = 1,
    as_json_: Annotated[
        bool, typer.Option("--json", help="As one JSON object; durations in seconds, times in µs since 1970.")
    ] = False,
) -> None:
    """Show a key's state in Redis, field by field: the entry's header, the lease record, dead letters. No values.

    The key is given by its name (cache:e1:{…}), by a query and params, or by a query and the hex digits that Flower and
    logs show. What the state means for the next read, explain shows.

    Exits with 1 when Redis has nothing of the key.
    """
    settings = ReaderSettings.from_env()
    named = permissions_named(settings, Permissions.missing_for_dead_letters, "operator")
    with named, opened_cache(settings.redis_url) as client:
        key = _named(settings.namespace, name) if ":" in name else None
        if key is None and params and len(params) == 1 and _DIGITS.fullmatch(params[0]):
            key = _found(client, settings.namespace, name, version, params[0])
        key = key or key_of(settings, name, params, version)
        seen = inspect_key(client, settings.namespace, key)
    if as_json_:
        typer.echo(as_json(_record(seen)))
    else:
        for line in _lines(seen):
            typer.echo(line)
    raise typer.Exit(0 if seen.is_there or seen.record or seen.dead_letters else 1)


def _named(namespace: str, name: str) -> CacheKey:
    key = KeyNames(namespace).key(name)
    if key is None:
        raise typer.BadParameter(f"{plain(name, 80)!r} is not a key of CACHE_NAMESPACE={namespace}, such as "
                                 f"{namespace}:e1:{{friends_of:1:…}}")  # fmt: skip
    return key


def _found(client: Any, namespace: str, query: str, version: int, digits: str) -> CacheKey:
    try:
        key = find_by_digest(client, namespace, check_query_name(query), version, digits)
    except InvalidQuery as error:
        raise typer.BadParameter(str(error)) from None
    if key is None:
        typer.echo(f"error: Redis has no key of {query} v{version} whose digits begin with {digits}", err=True)
        raise typer.Exit(1)
    return key


def _record(seen: Inspection) -> dict[str, Any]:
    key = seen.key
    return {
        "query": key.query, "version": key.version, "key": key.entry, "short": key.short, "now": seen.now_us,
        "entry": dict(seen.entry) if seen.is_there else None, "entry_left": seen.entry_left,
        "unreadable": seen.unreadable, "record_key": key.record, "record": dict(seen.record) or None,
        "record_left": seen.record_left, "dead_letters": list(seen.dead_letters),
    }  # fmt: skip


def _lines(seen: Inspection) -> Iterator[str]:
    yield f"{seen.key.query} v{seen.key.version} {seen.key.short}"
    yield ""
    yield f"entry {seen.key.entry}"
    if not seen.is_there:
        yield "  none"
    else:
        if seen.unreadable:
            yield _line("unreadable", seen.unreadable)
        yield from (_line(name, _shown(name, value, seen.now_us)) for name, value in seen.entry.items())
        yield _line("dropped", _dropped(seen.entry_left))
    yield ""
    yield f"record {seen.key.record}"
    if not seen.record:
        yield "  none (idle)"
    else:
        yield from (_line(name, _shown(name, value, seen.now_us)) for name, value in seen.record.items())
        yield _line("dropped", _dropped(seen.record_left))
    if seen.dead_letters:
        yield ""
        yield f"dead letters {' '.join(seen.dead_letters)}"


def _line(name: str, text: str) -> str:
    return f"  {name:<{NAME_COLUMNS}}{text}"


def _dropped(left: float | None) -> str:
    return "never" if left is None else f"in {duration(left)}"


def _shown(name: str, value: Any, now_us: int) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if name in _TIMES and str(value).isdecimal() and int(value):
        away = (int(value) - now_us) / 1e6
        return f"{value}  {time_of(int(value))}, {f'in {duration(away)}' if away > 0 else f'{duration(-away)} ago'}"
    if name in _SECONDS:
        return duration(float(value))
    return plain(f"{value:g}" if isinstance(value, float) else str(value), 200)
