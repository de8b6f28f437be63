"""Commands that read one key: ``refresher get``, ``explain`` and ``inspect``."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, replace
from typing import Annotated, Any, Final

import msgspec
import typer
from redis.exceptions import NoPermissionError

from api_client.client import CacheClient
from api_client.config.settings import ReaderSettings
from api_client.errors import CacheUnavailable, InvalidQuery, WaitTimeout
from api_client.explain import Explanation, details_of, duration, reason_of
from api_client.protocol.keys import CacheKey, check_query_name
from api_client.protocol.model import Entry, EntryState, RefreshState
from refresher.cli.arguments import Json, ParamList, QueryName, Version, duration_of, key_of, opened_cache
from refresher.cli.output import as_json, details_grid, plain, time_of, wide_console
from refresher.cli.permissions import permissions_named
from refresher.feed.state import FeedState, read_state
from refresher.ops.broker import Queues, queue_lengths
from refresher.ops.inspect import (
    MIN_DIGEST,
    Inspection,
    explain_keys,
    find_by_digest,
    inspect_key,
    registered_versions,
)
from refresher.ops.permissions import Permissions
from refresher.ops.scan import KeyNames

EXPLAIN_COLUMNS: Final = 10
INSPECT_COLUMNS: Final = 17
UNREGISTERED: Final = "no worker has registered it: is its name right, and is a worker running?"

_COLOURS = {EntryState.FRESH: "green", EntryState.STALE: "yellow", EntryState.MISS: "red"}
_DIGITS: Final = re.compile(rf"[0-9a-f]{{{MIN_DIGEST},32}}", re.ASCII)
_TIMES: Final = frozenset(
    {"read_started", "fetched", "soft_expiry", "until", "limit", "claimed_at", "published", "since", "failures_until"}
)
_SECONDS: Final = frozenset({"ttl", "delta", "delta_deviation", "run", "run_deviation"})


def get(
    query: QueryName,
    params: ParamList = None,
    version: Version = 1,
    fresh: Annotated[bool, typer.Option("--fresh", help="Only a value whose load begins after this call.")] = False,
    max_age: Annotated[
        str | None, typer.Option(metavar="DURATION", help="Only a value whose load began at most this long ago.")
    ] = None,
    timeout: Annotated[
        str | None,
        typer.Option(
            metavar="DURATION",
            help="How long to wait for a value; 0: not at all.  [default: STAMPEDE_WAIT_TIMEOUT_MS, 5s]",
        ),
    ] = None,
    as_json_: Annotated[
        bool, typer.Option("--json", help="As one JSON object: the value and what the cache knows of it; in seconds.")
    ] = False,
) -> None:
    """Read a value as an application does: from the cache, or wait for its load; a refresh is triggered when it is due.

    Prints the value as JSON, and on stderr its state and age. Bytes are base64.

    Exits with 1 when there is no value: the load failed, the wait timed out, or the cache can't be used.
    """
    settings = ReaderSettings.from_env()
    key = key_of(settings, query, params, version)
    max_age_seconds = None if max_age is None else duration_of(max_age, "--max-age")
    timeout_seconds = None if timeout is None else duration_of(timeout, "--timeout")
    with permissions_named(settings, Permissions.missing_for_readers, "reader"), CacheClient(settings) as client:
        try:
            entry = client.get_entry(
                query, key.params, version=version, fresh=fresh, max_age=max_age_seconds, timeout=timeout_seconds
            )
        except WaitTimeout as error:
            if _is_registered(settings, key):
                raise
            raise WaitTimeout(query, error.waited_seconds, error.state, UNREGISTERED) from error
    shown = {"query": query, "version": version, **msgspec.structs.asdict(entry)} if as_json_ else entry.value
    printed = _printed(shown)
    if not as_json_:
        typer.echo(f"{query} v{version}: {_facts(entry)}", err=True)
    typer.echo(printed)


def _printed(value: object) -> str:
    try:
        return msgspec.json.format(msgspec.json.encode(value), indent=2).decode()
    except TypeError as error:
        typer.echo(f"error: the value can't be printed as JSON: {error}", err=True)
        raise typer.Exit(1) from None


def _is_registered(settings: ReaderSettings, key: CacheKey) -> bool:
    """Return whether a worker has registered the key's query and version; true where that can't be queried."""
    with suppress(CacheUnavailable), opened_cache(settings.redis_url) as client:
        return key.version in registered_versions(client, settings.namespace, key.query)
    return True


def _facts(entry: Entry[Any]) -> str:
    left = entry.ttl_remaining
    facts = [
        *(["loaded for this read"] if entry.state is EntryState.MISS else []),
        f"{duration(entry.age)} old",
        f"fresh for another {duration(left)}" if left > 0 else f"stale for {duration(-left)}",
        *(["a refresh is triggered"] if entry.refresh is RefreshState.TRIGGERED else []),
    ]
    return ", ".join(facts)


def explain(
    query: QueryName,
    params: ParamList = None,
    version: Version = 1,
    as_json_: Json = False,
) -> None:
    """Show why a value is or isn't being refreshed: its time left, the probability of a refresh, and by which worker.

    Redis and broker are those of the environment (CACHE_REDIS_URL, CACHE_BROKER_URL, CACHE_NAMESPACE).

    Exits with 1 when the cache could not be queried.
    """
    settings = ReaderSettings.from_env()
    key = key_of(settings, query, params, version)
    named = permissions_named(settings, Permissions.missing_for_readers, "reader")
    with named, opened_cache(settings.redis_url) as client:
        (explained,) = explain_keys(client, [key])
        feed = None
        with suppress(NoPermissionError):  # its users may be from before the feed
            feed = read_state(client, settings.namespace)
        versions = registered_versions(client, settings.namespace, query)
    if queues := _queues(settings):
        explained = replace(explained, queue_length=queues.refresh, miss_queue_length=queues.miss)
    if as_json_:
        refreshed_by = "feed" if feed and feed.consumer and feed.covers(explained.tags) else "ttl"
        typer.echo(as_json({**asdict(explained), "refreshed_by": refreshed_by}))
    else:
        rows = details_of(explained)
        if feed and explained.state is EntryState.FRESH:
            rows.append(("refresh", _refreshed_by(explained, feed)))
        if explained.state is EntryState.MISS and key.version not in versions:
            rows.append(("query", UNREGISTERED))
        if explained.queue_length is None:
            rows.append(("queues", f"the broker at {settings.variable_of('broker_url')} can't be queried"))
        _print(explained, rows)


def _queues(settings: ReaderSettings) -> Queues | None:
    """Return how many refreshes are queued; None without the broker, which explains no less of the entry."""
    try:
        return queue_lengths(settings)
    except Exception:  # noqa: BLE001 - whatever a broker raises
        return None


def _refreshed_by(explained: Explanation, feed: FeedState) -> str:
    ttl = f"its TTL, in {duration(explained.ttl_remaining)}"
    if not feed.covers(explained.tags):
        return f"by {ttl}: it has no tag that the change feed watches"
    if not feed.consumer:
        return f"by {ttl}: nobody has consumed the change feed for {duration(feed.silent_for)}"
    return f"by the change feed, as soon as what its tags name has changed; at the latest by {ttl}"


def _print(explained: Explanation, rows: list[tuple[str, str]]) -> None:
    from rich.text import Text

    console = wide_console()
    console.print(
        Text.assemble(
            (f"{explained.query} v{explained.version}", "bold"), ": ",
            (reason_of(explained), _COLOURS[explained.state]),
        )
    )  # fmt: skip
    console.print(details_grid([*rows, ("key", explained.key)], EXPLAIN_COLUMNS))


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
    entry = {**({"unreadable": seen.unreadable} if seen.unreadable else {}), **seen.entry} if seen.is_there else {}
    yield f"{seen.key.query} v{seen.key.version} {seen.key.short}"
    for title, fields, left, none in (
        (f"entry {seen.key.entry}", entry, seen.entry_left, "none"),
        (f"record {seen.key.record}", seen.record, seen.record_left, "none (idle)"),
    ):
        yield f"\n{title}"
        shown = {name: _shown(name, value, seen.now_us) for name, value in fields.items()}
        if fields:
            shown["dropped"] = "never" if left is None else f"in {duration(left)}"
        yield from (f"  {name:<{INSPECT_COLUMNS}}{text}" for name, text in shown.items()) if shown else [f"  {none}"]
    if seen.dead_letters:
        yield f"\ndead letters {' '.join(seen.dead_letters)}"


def _shown(name: str, value: Any, now_us: int) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if name in _TIMES and str(value).isdecimal() and int(value):
        away = (int(value) - now_us) / 1e6
        return f"{value}  {time_of(int(value))}, {f'in {duration(away)}' if away > 0 else f'{duration(-away)} ago'}"
    if name in _SECONDS:
        return duration(float(value))
    return plain(f"{value:g}" if isinstance(value, float) else str(value), 200)
