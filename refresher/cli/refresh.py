"""Commands that load or invalidate: ``refresher warm``, ``refresh`` and ``invalidate``."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, Final, TypeAlias

import typer

from api_client.client import CacheClient
from api_client.config.settings import ReaderSettings
from api_client.errors import CacheError, InvalidQuery
from api_client.protocol.keys import CacheKey, make_key
from api_client.protocol.model import Entry, EntryState, RefreshState
from api_client.protocol.tags import check_tags
from api_client.read.requirements import MAX_REPLICAS, parse_bookmarks
from refresher.cli.arguments import Json, ParamList, QueryName, Version, Wait, duration_of, key_of, opened_cache, usage
from refresher.cli.output import as_json, counted, plain
from refresher.cli.permissions import permissions_named
from refresher.ops.lookup import cached_versions, registered_versions
from refresher.ops.permissions import Permissions, is_forbidden

MAX_FAILURES_SHOWN: Final = 10

Failure: TypeAlias = tuple[dict[str, Any], CacheError]

_WORDS = {RefreshState.TRIGGERED: "triggered", RefreshState.SUPPRESSED: "already in progress"}


def warm(
    query: QueryName,
    params: ParamList = None,
    version: Version = 1,
    file: Annotated[
        str | None, typer.Option("--from", metavar="FILE", help="JSON Lines: one object of params per key; - is stdin.")
    ] = None,
    at_once: Annotated[int, typer.Option(min=1, max=1_000, help="How many keys are read together.")] = 50,
    timeout: Annotated[
        str, typer.Option(metavar="DURATION", help="How long to wait for keys that are read together.")
    ] = "30s",
    as_json_: Json = False,
) -> None:
    """Load the keys that are not cached yet: before a deploy, say, whose version starts cold.

    Cached values stay as they are. Exits with 1 when a key could not be loaded; all others are, all the same.
    """
    timeout_seconds = duration_of(timeout, "--timeout")
    settings = ReaderSettings.from_env()
    if file is None:
        keys = [dict(key_of(settings, query, params, version).params)]
    elif params:
        raise typer.BadParameter("give either params or --from FILE")
    else:
        keys = list(_params_in(file, settings, query, version))
    counts: Counter[str] = Counter()
    failed: list[Failure] = []
    with permissions_named(settings, Permissions.missing_for_readers, "reader"), CacheClient(settings) as client:
        for part in _with_progress([keys[at : at + at_once] for at in range(0, len(keys), at_once)], hidden=as_json_):
            answers = client.get_many([(query, one) for one in part], version=version, timeout=timeout_seconds)
            for one, answer in zip(part, answers, strict=True):
                if isinstance(answer, Entry):
                    counts["loaded" if answer.state is EntryState.MISS else "there"] += 1
                elif is_forbidden(answer.__cause__):
                    raise answer  # every key would fail with that
                else:
                    failed.append((one, answer))
    _print_result(query, len(keys), counts, failed, json_wanted=as_json_)
    raise typer.Exit(1 if failed else 0)


def _params_in(file: str, settings: ReaderSettings, query: str, version: int) -> Iterator[dict[str, Any]]:
    """Parse the params of all keys before the first is read.

    Raises:
        typer.BadParameter: the file can't be read, or a line is wrong; the message has its number.
    """
    try:
        text = sys.stdin.read() if file == "-" else Path(file).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise typer.BadParameter(f"{file}: {error}", param_hint="--from") from None
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        try:
            found = json.loads(line)
            if not isinstance(found, dict):
                raise typer.BadParameter(f"line {number} is not a JSON object", param_hint="--from")
            make_key(settings.namespace, query, found, version)
        except InvalidQuery as error:
            raise typer.BadParameter(f"line {number}: {error}", param_hint="--from") from None
        except (ValueError, RecursionError) as error:
            raise typer.BadParameter(f"line {number} is not JSON: {error}", param_hint="--from") from None
        yield found


def _with_progress(parts: Sequence[list[dict[str, Any]]], *, hidden: bool) -> Iterator[list[dict[str, Any]]]:
    from rich.console import Console
    from rich.progress import track

    console = Console(stderr=True)
    yield from track(parts, "warming", console=console, transient=True, disable=hidden or not console.is_terminal)


def _print_result(query: str, keys: int, counts: Counter[str], failed: Sequence[Failure], *, json_wanted: bool) -> None:
    if json_wanted:
        failures = [{"params": params, "error": type(error).__name__, "why": str(error)} for params, error in failed]
        typer.echo(as_json({"keys": keys, "there": counts["there"], "loaded": counts["loaded"], "failed": failures}))
        return
    for params, error in failed[:MAX_FAILURES_SHOWN]:
        typer.echo(f"error: {plain(json.dumps(params, ensure_ascii=False), 80)}: {error}", err=True)
    if len(failed) > MAX_FAILURES_SHOWN:
        typer.echo(f"error: and {len(failed) - MAX_FAILURES_SHOWN} more: --json prints all", err=True)
    done = f"{counts['there']} already cached, {counts['loaded']} loaded, {len(failed)} failed"
    typer.echo(f"{query}: {counted(keys, 'key')}; {done}")


def refresh(
    query: QueryName, params: ParamList = None, version: Version = 1, wait: Wait = "30s", as_json_: Json = False
) -> None:
    """Load a value now, even if it is fresh or has just failed, and wait for it.

    Exits with 1 when the wait timed out, or the refresh failed; the error says which.
    """
    wait_seconds = duration_of(wait, "--wait")
    settings = ReaderSettings.from_env()
    key = key_of(settings, query, params, version)
    with permissions_named(settings, Permissions.missing_for_readers, "operator"), CacheClient(settings) as client:
        state = client.refresh(query, key.params, version=version, wait=wait_seconds > 0, timeout=wait_seconds or None)
    if as_json_:
        typer.echo(as_json({"query": query, "version": version, "refresh": state.value, "waited": wait_seconds > 0}))
    else:
        typer.echo(f"{query} v{version}: {'refreshed' if wait_seconds else _WORDS.get(state, state.value)}")


def invalidate(
    query: Annotated[str | None, typer.Argument(metavar="[QUERY]", help="The query's name.")] = None,
    params: ParamList = None,
    version: Annotated[int | None, typer.Option(min=1, help="Only this version.  [default: all live ones]")] = None,
    tag: Annotated[
        list[str] | None,
        typer.Option(metavar="TAG", help="All values with this tag, instead of one key; may be repeated."),
    ] = None,
    hard: Annotated[bool, typer.Option("--hard", help="Drop the value: reads wait until it is loaded anew.")] = False,
    bookmark: Annotated[
        list[str] | None, typer.Option(metavar="BOOKMARK", help="The write's, from the graph; may be repeated.")
    ] = None,
    replicas: Annotated[
        int, typer.Option(min=0, max=MAX_REPLICAS, help="Wait until this many replicas of the cache have it.")
    ] = 0,
    as_json_: Json = False,
) -> None:
    """Make a value stale in all its versions, whatever is being loaded; the next read triggers a refresh.

    With --tag instead of QUERY: every value that has one of the tags.

    Exits with 1 when fewer replicas than requested have it.
    """
    if (query is None) == (not tag) or (tag and (params or version or replicas)):
        raise typer.BadParameter("give either QUERY with its params, --version and --replicas, or --tag")
    with usage("--tag"):
        check_tags(tag or ())
    with usage("--bookmark"):
        parse_bookmarks(query or "tags", bookmark or ())
    settings = ReaderSettings.from_env()
    if query is None:
        _invalidate_tags(settings, tag or [], hard=hard, bookmarks=bookmark or (), as_json_=as_json_)
    else:
        key = key_of(settings, query, params, version or 1)
        _invalidate_key(
            settings, key, version, hard=hard, bookmarks=bookmark or (), replicas=replicas, as_json_=as_json_
        )


def _invalidate_key(
    settings: ReaderSettings,
    key: CacheKey,
    version: int | None,
    *,
    hard: bool,
    bookmarks: Sequence[str],
    replicas: int,
    as_json_: bool,
) -> None:
    query = key.query
    with permissions_named(settings, Permissions.missing_to_invalidate, "invalidator"):
        with opened_cache(settings.redis_url) as cache:
            registered = registered_versions(cache, settings.namespace, query)
            # Before the invalidation, since a hard one leaves no entry.
            cached = cached_versions(cache, key, {key.version} if version else {key.version, *registered})
        with CacheClient(settings) as client:
            done = client.invalidate(
                query, key.params, version=version, hard=hard, bookmarks=bookmarks, replicas=replicas
            )
    if not cached and registered.isdisjoint(done.generations):
        of_one = f"version {version} of {query}" if version else query
        typer.echo(f"warning: no worker has registered {of_one}: is its name right, and is a worker running?", err=True)
    if as_json_:
        typer.echo(as_json({**asdict(done), "cached": sorted(cached)}))
    else:
        for one, generation in done.generations.items():
            what = f"{'gone' if hard else 'stale'} from now on" if one in cached else "there was no entry"
            typer.echo(f"{query} v{one}: {what}, generation {generation}")
        if done.replicated is False:
            typer.echo(f"error: fewer than {replicas} replicas have it", err=True)
    raise typer.Exit(1 if done.replicated is False else 0)


def _invalidate_tags(
    settings: ReaderSettings, tags: list[str], *, hard: bool, bookmarks: Sequence[str], as_json_: bool
) -> None:
    named = permissions_named(settings, Permissions.missing_to_invalidate_tags, "invalidator")
    with named, CacheClient(settings) as client:
        entries = client.invalidate_tags(tags, hard=hard, bookmarks=bookmarks).entries
    if as_json_:
        typer.echo(as_json({"tags": tags, "entries": entries}))
    else:
        number = counted(entries, "entry is", "entries are")
        typer.echo(f"{', '.join(tags)}: {number} {'gone' if hard else 'stale'} from now on")
