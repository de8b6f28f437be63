"""Commands that read one key: ``refresher get`` and ``explain``."""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import asdict, replace
from typing import Annotated, Any, Final

import msgspec
import typer
from redis.exceptions import NoPermissionError

from api_client.client import CacheClient
from api_client.config.settings import ReaderSettings
from api_client.errors import CacheUnavailable, WaitTimeout
from api_client.explain import Explanation, details_of, duration, reason_of
from api_client.protocol.keys import CacheKey, check_query_name
from api_client.protocol.model import Entry, EntryState, RefreshState
from refresher.cli.arguments import Json, ParamList, QueryName, Version, duration_of, key_of, opened_cache, usage
from refresher.cli.output import as_json, details_grid, fail, plain, wide_console
from refresher.cli.permissions import permissions_named
from refresher.feed.state import FeedState, read_state
from refresher.ops.broker import Queues, queue_lengths
from refresher.ops.lookup import MIN_DIGEST, explain_keys, find_by_digest, registered_versions
from refresher.ops.permissions import Permissions
from refresher.ops.scan import KeyNames

EXPLAIN_COLUMNS: Final = 10
UNREGISTERED: Final = "no worker has registered it: is its name right, and is a worker running?"

_COLOURS = {EntryState.FRESH: "green", EntryState.STALE: "yellow", EntryState.MISS: "red"}
_DIGITS: Final = re.compile(rf"[0-9a-f]{{{MIN_DIGEST},32}}", re.ASCII)


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
        fail(f"the value can't be printed as JSON: {error}")


def _is_registered(settings: ReaderSettings, key: CacheKey) -> bool:
    """Return whether a worker has registered the key's query and version; True if that can't be queried."""
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
    name: Annotated[str, typer.Argument(metavar="QUERY|KEY", help="The query's name, or a key's name in Redis.")],
    params: ParamList = None,
    version: Version = 1,
    as_json_: Json = False,
) -> None:
    """Show why a value is or isn't being refreshed: its time left, the probability of a refresh, and by which worker.

    The key is given by a query and params, by a query and the hex digits that Flower and logs show, or by its name in
    Redis (cache:e1:{…}).

    Exits with 1 when the cache could not be queried, or has no key with these digits.
    """
    settings = ReaderSettings.from_env()
    named = permissions_named(settings, Permissions.missing_for_readers, "reader")
    with named, opened_cache(settings.redis_url) as client:
        key = _key(client, settings, name, params, version)
        (explained,) = explain_keys(client, [key])
        feed = None
        with suppress(NoPermissionError):  # its users may predate the feed
            feed = read_state(client, settings.namespace)
        versions = registered_versions(client, settings.namespace, key.query)
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
    """Return the numbers of queued refreshes, or None without the broker, which is not needed to explain the entry."""
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


def _key(client: Any, settings: ReaderSettings, name: str, params: list[str] | None, version: int) -> CacheKey:
    if ":" in name:
        return _named(settings.namespace, name)
    if params and len(params) == 1 and _DIGITS.fullmatch(params[0]):
        return _found(client, settings.namespace, name, version, params[0])
    return key_of(settings, name, params, version)


def _named(namespace: str, name: str) -> CacheKey:
    key = KeyNames(namespace).key(name)
    if key is None:
        raise typer.BadParameter(f"{plain(name, 80)!r} is not a key of CACHE_NAMESPACE={namespace}, such as "
                                 f"{namespace}:e1:{{friends_of:1:…}}")  # fmt: skip
    return key


def _found(client: Any, namespace: str, query: str, version: int, digits: str) -> CacheKey:
    with usage():
        key = find_by_digest(client, namespace, check_query_name(query), version, digits)
    if key is None:
        fail(f"Redis has no key of {query} v{version} whose digits begin with {digits}")
    return key
