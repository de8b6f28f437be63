"""``refresher dead``: list, show, retry, drop."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Annotated, Any, Final, TypeAlias

import typer

from api_client.client import CacheClient
from api_client.config.settings import ReaderSettings
from api_client.explain import details_of, duration, reason_of
from refresher.cli.arguments import Json, Wait, duration_of, opened_cache
from refresher.cli.output import as_json, compact, counted, fail, plain, table_of, time_of, wide_console
from refresher.cli.permissions import permissions_named
from refresher.flow.dead_letters import MAX_KEPT
from refresher.ops.dead_keys import DeadKey, DeadKeys, KeyStatus, RetryOutcome, RetryResult
from refresher.ops.permissions import Permissions

DEFAULT_MOST: Final = 50
MAX_PARAMS_CHARACTERS: Final = 60
MASKED: Final = "(not kept)"
_COLUMNS: Final = ("ID", "query", "params", "failed", "attempts", "in a row", "when", "now")

dead: Final = typer.Typer(
    name="dead", help="Refreshes that were abandoned: what failed, why, and how to go on.",
    no_args_is_help=True, rich_markup_mode=None,
)  # fmt: skip

Ids: TypeAlias = Annotated[list[str] | None, typer.Argument(metavar="[ID]...", help="As shown by `dead list`.")]
OfQuery: TypeAlias = Annotated[str | None, typer.Option("--query", metavar="NAME", help="All keys of this query.")]
Every: TypeAlias = Annotated[bool, typer.Option("--all", help="All keys.")]


@dead.command("list", short_help="List the dead keys.")
def list_letters(
    query: Annotated[str | None, typer.Option("--query", metavar="NAME", help="Of this query alone.")] = None,
    most: Annotated[int, typer.Option(min=1, max=MAX_KEPT, help="At most this many, latest first.")] = DEFAULT_MOST,
    as_json_: Json = False,
) -> None:
    """List the keys whose refresh was abandoned, latest failure first, and the state of each.

    A key is quarantined or cooling (for the time shown); queued, running or retrying; refreshed since; or idle: then
    the next reader triggers a refresh. One that was refreshed since needs nothing more: drop it, or leave it.
    """
    with _dead_keys() as (keys, _):
        found = [one for one in keys.all() if query in {None, one.letter.query}]
    if as_json_:
        typer.echo(as_json([_record_of(one) for one in found[:most]]))
        return
    if not found:
        typer.echo("no dead letters")
        return
    wide_console().print(table_of(_COLUMNS, map(_row_of, found[:most])))
    if len(found) > most:
        typer.echo(f"and {len(found) - most} more: --most {min(len(found), MAX_KEPT)}")


@dead.command(short_help="Show one, with the failure's whole text.")
def show(
    identifier: Annotated[str, typer.Argument(metavar="ID", help="As `dead list` shows it.")], as_json_: Json = False
) -> None:
    """Show one: its params, the failure's whole text, and why the key is or isn't being refreshed.

    Exits with 1 when there is no such letter.
    """
    with _dead_keys() as (keys, _):
        (one,) = _chosen(keys.all(), [identifier], None, every=False)
    if as_json_:
        typer.echo(as_json(_record_of(one)))
        return
    letter = one.letter
    lines = [
        ("query", f"{letter.query} v{letter.version}"),
        ("params", MASKED if letter.params is None else plain(compact(letter.params))),
        ("failed", f"{time_of(letter.at_us)}, {letter.kind} after {counted(letter.attempts, 'attempt')}"),
        ("because", MASKED if letter.message is None else plain(letter.message)),
        *([("at", plain(letter.place))] if letter.place else []),
        ("in a row", str(letter.failures) if letter.failures else "not counted (infrastructure failure)"),
        ("letters", str(len(one.letters))),
        ("now", f"{_status_text(one)}; {reason_of(one.now)}"),
        *details_of(one.now),
        ("key", one.key.entry),
    ]
    for name, text in lines:
        typer.echo(f"{name:<10}{text}")


@dead.command(short_help="Refresh keys now, also those in quarantine.")
def retry(
    identifiers: Ids = None, query: OfQuery = None, every: Every = False, wait: Wait = "30s", as_json_: Json = False
) -> None:
    """Refresh keys now, also those in quarantine, and print the result of each.

    The letter of a key that is refreshed is dropped; every other one stays, and a refresh that fails again keeps the
    key in quarantine, longer. Exits with 0 when every key was refreshed (with --wait 0: triggered), else with 1.
    """
    wait_seconds = duration_of(wait, "--wait")
    with _dead_keys() as (keys, settings), CacheClient(settings) as client:
        chosen = _chosen(keys.all(), identifiers, query, every=every)
        results = keys.retry(chosen, client, wait_seconds=wait_seconds)
    _print_results(
        [({"result": result.what.value, "why": result.why}, _retried_line(result), result.dead) for result in results],
        json=as_json_,
    )
    fine = {RetryOutcome.REFRESHED} if wait_seconds else {RetryOutcome.REFRESHED, RetryOutcome.PENDING}
    raise typer.Exit(0 if all(result.what in fine for result in results) else 1)


@dead.command(short_help="Forget failures; the next reader triggers a refresh.")
def drop(identifiers: Ids = None, query: OfQuery = None, every: Every = False, as_json_: Json = False) -> None:
    """Forget failures: the letters go, and a backoff ends, so that the next reader triggers a refresh.

    Exits with 1 when a named letter does not exist; then none is dropped.
    """
    with _dead_keys() as (keys, _):
        dropped = [(one, keys.drop(one)) for one in _chosen(keys.all(), identifiers, query, every=every)]
    _print_results(
        [
            ({"result": "dropped", "ended_pause": ended}, "dropped" + (", backoff ended" if ended else ""), one)
            for one, ended in dropped
        ],
        json=as_json_,
    )


@contextmanager
def _dead_keys() -> Iterator[tuple[DeadKeys, ReaderSettings]]:
    settings = ReaderSettings.from_env()
    named = permissions_named(settings, Permissions.missing_for_dead_letters, "operator")
    with named, opened_cache(settings.redis_url) as client:
        yield DeadKeys(client, settings), settings


def _chosen(found: Sequence[DeadKey], ids: list[str] | None, query: str | None, *, every: bool) -> list[DeadKey]:
    """Return the selected keys.

    Raises:
        typer.BadParameter: not exactly one of IDs, query and --all was given.
    """
    if [bool(ids), query is not None, every].count(True) != 1:
        raise typer.BadParameter("give one of: IDs, --query NAME, --all")
    if not ids:
        return [one for one in found if query in {None, one.letter.query}]
    by_id = {letter.id: one for one in found for letter in one.letters}
    missing = [identifier for identifier in ids if identifier not in by_id]
    if missing:
        fail(f"no dead letter {plain(missing[0], 60)}")
    return list({by_id[identifier].letter.id: by_id[identifier] for identifier in ids}.values())


def _print_results(results: Sequence[tuple[dict[str, Any], str, DeadKey]], *, json: bool) -> None:
    if json:
        typer.echo(as_json([{"id": one.letter.id, "query": one.letter.query, **record} for record, _, one in results]))
        return
    for _, line, one in results[:DEFAULT_MOST]:
        typer.echo(f"{one.letter.id}  {one.letter.query}: {line}")
    if len(results) > DEFAULT_MOST:
        typer.echo(f"and {len(results) - DEFAULT_MOST} more: --json prints all")
    typer.echo(counted(len(results), "key"))


def _retried_line(result: RetryResult) -> str:
    why = f" ({plain(result.why, 200)})" if result.why else ""
    paused = f", {_status_text(result.dead)}" if result.what is RetryOutcome.FAILED_AGAIN else ""
    return f"{result.what.value}{why}{paused}"


def _status_text(one: DeadKey) -> str:
    if one.status in {KeyStatus.QUARANTINED, KeyStatus.COOLING}:
        return f"{one.status.value} for {duration(one.left_seconds)} more"
    return "refreshed since" if one.status is KeyStatus.REFRESHED else one.status.value


def _record_of(one: DeadKey) -> dict[str, Any]:
    letter = one.letter
    return {
        "id": letter.id, "query": letter.query, "version": letter.version, "params": letter.params,
        "key": one.key.entry, "kind": letter.kind, "message": letter.message, "place": letter.place,
        "attempts": letter.attempts, "failures": letter.failures, "letters": len(one.letters),
        "at": time_of(letter.at_us), "state": one.status.value, "state_left": round(one.left_seconds, 3),
    }  # fmt: skip


def _row_of(one: DeadKey) -> tuple[str, ...]:
    letter = one.letter
    params = MASKED if letter.params is None else plain(compact(letter.params), MAX_PARAMS_CHARACTERS)
    return (
        letter.id, letter.query, params, letter.kind, str(letter.attempts), str(letter.failures or "–"),
        time_of(letter.at_us), _status_text(one),
    )  # fmt: skip
