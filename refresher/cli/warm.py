"""``refresher warm``."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any, Final, TypeAlias

import typer

from api_client.client import CacheClient
from api_client.config.settings import ReaderSettings
from api_client.errors import CacheError, InvalidQuery
from api_client.protocol.keys import make_key
from api_client.protocol.model import Entry, EntryState
from refresher.cli.arguments import ParamList, QueryName, Version, duration_of, key_of
from refresher.cli.output import as_json, plain
from refresher.cli.output import counted as number_of
from refresher.cli.permissions import permissions_named
from refresher.ops.permissions import Permissions, is_forbidden

MAX_FAILURES_SHOWN: Final = 10

Failure: TypeAlias = tuple[dict[str, Any], CacheError]


def warm(
    query: QueryName,
    params: ParamList = None,
    version: Version = 1,
    file: Annotated[
        str | None,
        typer.Option("--from", metavar="FILE", help="JSON Lines: one object of params per key; - is stdin."),
    ] = None,
    at_once: Annotated[int, typer.Option(min=1, max=1_000, help="How many keys are read together.")] = 50,
    timeout: Annotated[
        str, typer.Option(metavar="DURATION", help="How long to wait for keys that are read together.")
    ] = "30s",
    as_json_: Annotated[bool, typer.Option("--json", help="As one JSON object.")] = False,
) -> None:
    """Load the keys that are not cached yet: before a deploy, say, whose version starts cold.

    Cached values stay as they are. Exits with 1 when a key could not be loaded; all others are, all the same.
    """
    timeout_seconds = duration_of(timeout, "--timeout")
    settings = ReaderSettings.from_env()
    if file is None:
        keys = [dict(key_of(settings, query, params, version).params)]
    elif params:
        raise typer.BadParameter("allowed is one of: params, --from FILE")
    else:
        keys = list(_params_in(file, settings, query, version))
    counted: Counter[str] = Counter()
    failed: list[Failure] = []
    with permissions_named(settings, Permissions.missing_for_readers, "reader"), CacheClient(settings) as client:
        for part in _shown([keys[at : at + at_once] for at in range(0, len(keys), at_once)], hidden=as_json_):
            answers = client.get_many([(query, one) for one in part], version=version, timeout=timeout_seconds)
            for one, answer in zip(part, answers, strict=True):
                if isinstance(answer, Entry):
                    counted["loaded" if answer.state is EntryState.MISS else "there"] += 1
                elif is_forbidden(answer.__cause__):
                    raise answer  # every key would meet that
                else:
                    failed.append((one, answer))
    _print_result(query, len(keys), counted, failed, json_wanted=as_json_)
    raise typer.Exit(1 if failed else 0)


def _params_in(file: str, settings: ReaderSettings, query: str, version: int) -> Iterator[dict[str, Any]]:
    """Parse the params of all keys, before the first is read.

    Raises:
        typer.BadParameter: the file can't be read, or a line is wrong, which the message names.
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


def _shown(parts: Sequence[list[dict[str, Any]]], *, hidden: bool) -> Iterator[list[dict[str, Any]]]:
    from rich.console import Console
    from rich.progress import track

    console = Console(stderr=True)
    yield from track(parts, "warming", console=console, transient=True, disable=hidden or not console.is_terminal)


def _print_result(
    query: str, keys: int, counted: Counter[str], failed: Sequence[Failure], *, json_wanted: bool
) -> None:
    if json_wanted:
        failures = [{"params": params, "error": type(error).__name__, "why": str(error)} for params, error in failed]
        typer.echo(as_json({"keys": keys, "there": counted["there"], "loaded": counted["loaded"], "failed": failures}))
        return
    for params, error in failed[:MAX_FAILURES_SHOWN]:
        typer.echo(f"error: {plain(json.dumps(params, ensure_ascii=False), 80)}: {error}", err=True)
    if len(failed) > MAX_FAILURES_SHOWN:
        typer.echo(f"error: and {len(failed) - MAX_FAILURES_SHOWN} more: --json prints all", err=True)
    counts = f"{counted['there']} already cached, {counted['loaded']} loaded, {len(failed)} failed"
    typer.echo(f"{query}: {number_of(keys, 'key')}; {counts}")
