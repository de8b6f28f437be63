"""``refresher status``, once, live or as a page."""

from __future__ import annotations

import secrets
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeAlias

import typer

from api_client.config.settings import ReaderSettings
from api_client.explain import duration
from refresher.cli.output import as_json, compact, counted, details_grid, fail, plain, table_of, wide_console
from refresher.feed.state import FeedState
from refresher.ops.broker import WorkerSeen
from refresher.ops.budgets import ALL
from refresher.ops.http import LOOPBACK
from refresher.ops.scan import DEFAULT_MAX_KEYS, KeysSeen, QueryKeys, TagsSeen
from refresher.ops.status import WORKERS_TTL_SECONDS, DeadSeen, Status, StatusPoller
from refresher.web.api import StatusApi
from refresher.web.history import History
from refresher.web.server import USER, StatusServer
from refresher.web.settings import WebSettings

if TYPE_CHECKING:
    from rich.console import RenderableType

DEFAULT_WATCH_SECONDS: Final = 2.0
DEFAULT_PORT: Final = 5556
DEFAULT_ADDRESS: Final = "127.0.0.1"
DEFAULT_WEB_SECONDS: Final = 5.0
PASSWORD_BYTES: Final = 18
UNKNOWN: Final = "–"
_COLUMNS: Final = (
    "query", "keys", "stale", "stale for", "lead", "queued", "oldest", "running", "retrying", "cooling", "lapsed",
    "dead",
)  # fmt: skip


Once: TypeAlias = Annotated[bool, typer.Option("--once", help="Print once and exit, also on a terminal.")]
Watch: TypeAlias = Annotated[
    float | None,
    typer.Option(metavar="SECONDS", min=0.5, max=3600, help="Repeat at this interval, until Ctrl-C. [default: 2]"),
]
MostKeys: TypeAlias = Annotated[
    int, typer.Option(metavar="N", min=1_000, max=100_000_000, help="Scan at most about N keys, each time.")
]
Json: TypeAlias = Annotated[
    bool, typer.Option("--json", help="As one JSON object; with --watch one per line; durations in seconds.")
]
Web: TypeAlias = Annotated[bool, typer.Option("--web", help="Serve a page instead, with plots and a button to retry.")]
Port: TypeAlias = Annotated[
    int | None, typer.Option(min=0, max=65535, help=f"The page's port; 0: any free one.  [default: {DEFAULT_PORT}]")
]
Address: TypeAlias = Annotated[str | None, typer.Option(help=f"Where the page listens.  [default: {DEFAULT_ADDRESS}]")]


def status(
    once: Once = False,
    watch: Watch = None,
    keys: MostKeys = DEFAULT_MAX_KEYS,
    as_json_: Json = False,
    web: Web = False,
    port: Port = None,
    address: Address = None,
) -> None:
    """Show by query what the cache holds and what is being refreshed, the queue lengths, and the workers.

    On a terminal it repeats until Ctrl-C, elsewhere it shows once. Where there are more keys than --keys, it says that
    it is a sample, and estimates nothing from it.

    The page of --web requires the user refresher and a password: REFRESHER_STATUS_PASSWORD, or a random one, which is
    printed. It has no encryption of its own.

    Exits with 1 when the cache or the broker could not be queried.
    """
    if once and watch is not None:
        raise typer.BadParameter("give either --once or --watch")
    if web:
        if once or as_json_:
            raise typer.BadParameter("--web allows neither --once nor --json")
        listen_at = (DEFAULT_ADDRESS if address is None else address, DEFAULT_PORT if port is None else port)
        _serve(*listen_at, max_keys=keys, every_seconds=watch or DEFAULT_WEB_SECONDS)
        return
    if port is not None or address is not None:
        raise typer.BadParameter("--port and --address are the page's: give --web too")
    goes_on = watch is not None or (not once and not as_json_ and sys.stdout.isatty())
    poller = StatusPoller(
        ReaderSettings.from_env(), max_keys=keys, workers_ttl_seconds=WORKERS_TTL_SECONDS if goes_on else 0.0
    )
    if goes_on:
        _watch(poller, watch or DEFAULT_WATCH_SECONDS, as_json_=as_json_)
        return
    seen = poller.poll()
    if as_json_:
        typer.echo(as_json(record_of(seen)))
    else:
        wide_console().print(_shown(seen))
    raise typer.Exit(0 if seen.is_whole else 1)


def record_of(seen: Status) -> dict[str, Any]:
    """Return a sample for JSON."""
    return {"ok": seen.is_whole, **asdict(seen)}


def _serve(address: str, port: int, *, max_keys: int, every_seconds: float) -> None:
    """Serve the status page until Ctrl-C; exit with 1 if the address can't be used."""
    settings, given = ReaderSettings.from_env(), WebSettings.from_env().password
    poller = StatusPoller(settings, max_keys=max_keys, workers_ttl_seconds=WORKERS_TTL_SECONDS)
    history = History(poller.poll, every_seconds)
    password = given or secrets.token_urlsafe(PASSWORD_BYTES)
    try:
        server = StatusServer((address, port), StatusApi(settings, history), password)
    except OSError as error:
        fail(f"can't serve the page at {address}:{port}: {error}")
    shown = "of REFRESHER_STATUS_PASSWORD" if given else password
    typer.echo(f"status page: http://{address}:{server.server_port}/  user {USER}, password {shown}; Ctrl-C to stop")
    if address not in LOOPBACK:
        typer.echo(
            "warning: not encrypted, anyone on the network can read the password: put a TLS proxy in front", err=True
        )
    history.start()
    try:
        server.serve_forever()
    except KeyboardInterrupt:
        return
    finally:
        history.close()
        server.server_close()


def _watch(poller: StatusPoller, seconds: float, *, as_json_: bool) -> None:
    try:
        if as_json_:
            while True:
                typer.echo(compact(record_of(poller.poll())))
                time.sleep(seconds)
        _show_live(poller, seconds)
    except KeyboardInterrupt:
        return


def _show_live(poller: StatusPoller, seconds: float) -> None:
    from rich.live import Live
    from rich.text import Text

    with Live(Text("loading …"), console=wide_console(), auto_refresh=False) as live:
        while True:
            live.update(_shown(poller.poll(), ends="Ctrl-C to stop"), refresh=True)
            time.sleep(seconds)


def _shown(seen: Status, ends: str = "") -> RenderableType:
    from rich.console import Group
    from rich.text import Text

    summary = [(part, Text(plain(line), "red" if is_problem else "")) for part, line, is_problem in _lines(seen)]
    shown: list[RenderableType] = [details_grid(summary)]
    if seen.keys is not None and not seen.keys.problem:
        rows = list(_rows(seen.keys, seen.dead))
        shown += [Text(), table_of(_COLUMNS, rows, are_numbers=True) if rows else Text("no keys in the cache")]
        shown += _lists(seen.keys)
    if ends:
        shown.append(Text(f"{time.strftime('%H:%M:%S', time.localtime(seen.at))}, {ends}", style="dim"))
    return Group(*shown)


def _lines(seen: Status) -> Iterator[tuple[str, str, bool]]:
    """Yield for each part its name, one line of text, and whether that is a problem."""
    keys, dead, queues, workers = seen.keys, seen.dead, seen.queues, seen.workers
    if keys is None:
        yield "cache", seen.problems["keys"], True
    elif keys.problem:
        yield "cache", f"can't be scanned: {keys.problem}", True
    else:
        yield "cache", _of_cache(keys), False
        if keys.tags is not None and (keys.tags.indexes or keys.tags.pending):
            yield "tags", _of_tags(keys.tags), False
        if keys.budgets:
            yield "budgets", _of_budgets(keys.budgets), False
    if queues is None:
        yield "queues", seen.problems["queues"], True
    else:
        yield "queues", f"{queues.refresh} background and {queues.miss} blocking refreshes queued", False
    if workers is None:
        yield "workers", seen.problems["workers"], True
    elif workers:
        yield "workers", f"{len(workers)}: {', '.join(map(_of_worker, workers))}", False
    else:
        yield "workers", "none replies: nothing is refreshed", True
    if seen.feed is None:
        yield "feed", seen.problems.get("feed", "off"), "feed" in seen.problems
    else:
        yield "feed", _of_feed(seen.feed), not seen.feed.consumer
    if dead is None:
        yield "dead", seen.problems["dead"], True
    else:
        open_, quarantined = sum(dead.open.values()), sum(dead.quarantined.values())
        more = f", {quarantined} in quarantine: refresher dead list" if open_ else ""
        yield "dead", f"{counted(open_, 'dead key')}{more}", False


def _of_feed(state: FeedState) -> str:
    if not state.consumer:
        return f"nobody has consumed for {duration(state.silent_for)}: refresher feed status"
    count = "more" if state.waiting is None else counted(state.waiting, "transaction")
    waits = "nothing waits" if state.waiting == 0 else f"{count} to take, the oldest of {duration(state.oldest)} ago"
    if state.p50 is not None:
        waits += (
            f"; changes are invalidated {_time(state.p50)} after the commit (median), 99 % within {_time(state.p99)}"
        )
    return f"{state.consumer} consumes: {waits}"


def _of_worker(one: WorkerSeen) -> str:
    return f"{one.name} ({one.pool} × {one.processes}, {sum(one.taken.values())} taken, up {duration(one.uptime)})"


def _of_budgets(in_progress: Mapping[str, int]) -> str:
    loads = (f"{'all' if query == ALL else query} {count:,}" for query, count in in_progress.items())
    return f"loads in progress: {', '.join(loads)}"


def _of_tags(tags: TagsSeen) -> str:
    sizes = f"{counted(tags.indexes, 'tag')} seen, {tags.members:,} members, at most {tags.largest:,} in one"
    return f"{sizes}; {counted(tags.pending, 'invalidation')} pending"


def _of_cache(keys: KeysSeen) -> str:
    count = sum(row.keys for row in keys.queries.values())
    entries = counted(count, "entry", "entries")
    if not keys.is_sample:
        return entries
    of = f" of {keys.keys_of_server:,} keys" if keys.keys_of_server is not None else ""
    return f"a sample{of}: {entries} seen"


def _rows(keys: KeysSeen, seen: DeadSeen | None) -> Iterator[tuple[str, ...]]:
    dead = None if seen is None else seen.open
    for name in sorted({*keys.queries, *(dead or {})}):
        row = keys.queries.get(name, QueryKeys(name))
        yield (
            name, f"{row.keys:,}", f"{row.stale} of {row.headers}" if row.headers else UNKNOWN,
            _time(row.oldest_stale), _time(row.lead), str(row.queued), _time(row.longest_wait), str(row.running),
            str(row.retrying), str(row.cooling), str(row.lapsed), UNKNOWN if dead is None else str(dead.get(name, 0)),
        )  # fmt: skip


def _lists(keys: KeysSeen) -> Iterator[RenderableType]:
    from rich.text import Text

    if keys.runs:
        yield Text("\nrunning loads, longest first", style="bold")
        yield from (Text(plain(f"{one.query} {one.key}  {duration(one.lasts)}  {one.by}")) for one in keys.runs)


def _time(seconds: float | None) -> str:
    return UNKNOWN if seconds is None else duration(seconds)
