"""``refresher queries``."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Annotated, Any, Final

import typer

from api_client.errors import ConfigurationError
from api_client.explain import duration
from refresher.cli.arguments import Json
from refresher.cli.output import as_json, table_of, wide_console
from refresher.queries import AUTO, PREVIOUS, Query, registry
from refresher.query_modules import import_queries
from refresher.settings import WorkerSettings

_COLUMNS: Final = ("query", "v", "params", "TTL", "grace", "early refresh", "slots", "budget", "about")


def queries(
    as_json_: Json = False,
    tags: Annotated[
        bool,
        typer.Option("--tags", help='Ask the graph what the texts of queries with tags="auto" depend on, and why.'),
    ] = False,
) -> None:
    """List the queries that a worker of this environment can load (REFRESHER_QUERIES), and how each is cached.

    Exits with 1 when none is registered, or a module can't be imported; with --tags also when the graph can't be asked.
    """
    settings = WorkerSettings.from_env()
    import_queries(settings.query_modules)
    if not len(registry):
        raise ConfigurationError("REFRESHER_QUERIES", repr(settings.queries), "name the modules that use @query")
    if tags:
        _show_tags(settings, as_json_=as_json_)
        return
    if as_json_:
        typer.echo(as_json([_record_of(one, settings) for one in registry]))
        return
    wide_console().print(table_of(_COLUMNS, [_row_of(one, settings) for one in registry]))


@dataclass(frozen=True, slots=True)
class _Tags:
    """Dependencies of a query's text, or of a query with unknown texts."""

    query: str
    cypher: str = ""
    tags: tuple[str, ...] = ()
    not_covered: tuple[str, ...] = ()
    why: tuple[str, ...] = ()

    @property
    def row(self) -> tuple[str, ...]:
        return self.query, self.cypher, ", ".join(self.tags), "; ".join((*self.why, *self.not_covered))


def _show_tags(settings: WorkerSettings, *, as_json_: bool) -> None:
    found = list(_tags_of_all(settings))
    if as_json_:
        typer.echo(as_json([asdict(one) for one in found]))
        return
    columns = ("query", "cypher", "tags", "why, and what no tag covers")
    wide_console().print(table_of(columns, [one.row for one in found]))


def _tags_of_all(settings: WorkerSettings) -> Iterator[_Tags]:
    from refresher.feed.auto.texts import look_up, texts_of
    from refresher.feed.watches import check_watched

    check_watched(registry)
    for one in look_up(registry, settings):
        tags, why = map(str, one.found.found), {f"{each}: {each.why}" for each in one.found.found if each.why}
        cypher = " ".join(one.cypher.split())
        yield _Tags(one.query, cypher, tuple(sorted(tags)), tuple(one.found.gaps), tuple(sorted(why)))
    for query in registry:
        if query.tags != AUTO:
            fixed = query.tags if isinstance(query.tags, tuple) else ()
            yield _Tags(query.name, tags=fixed, why=("of a function",) if callable(query.tags) else ())
        elif not texts_of(query.loader):
            yield _Tags(query.name, why=("no text in its code: see its entries' tags in refresher explain",))


def _record_of(one: Query, settings: WorkerSettings) -> dict[str, Any]:
    return {
        "query": one.name,
        "version": one.version,
        "params": _params_of(one),
        "ttl": one.ttl_seconds,
        "grace": one.grace_seconds,
        "beta0": settings.beta if one.beta is None else one.beta,
        "beta": _beta_of(one, settings),
        "sigma": one.sigma,
        "degree": one.degree_cypher,
        "slots": one.slots,
        "rate": one.budget.rate,
        "concurrency": one.budget.concurrency,
        "batch": one.batch,
        "conditional": one.conditional,
        "version_cypher": one.version_cypher,
        "module": one.loader.__module__,
        "about": inspect.getdoc(one.loader) or "",
    }


def _params_of(one: Query) -> list[str]:
    # The first parameter is the transaction.
    _, *params = inspect.signature(one.loader).parameters.values()
    return [_shown(param) for param in params if not (one.conditional and param.name == PREVIOUS)]


def _shown(param: inspect.Parameter) -> str:
    """Format a param as in the loader's signature, even if annotations are kept as text."""
    if not isinstance(param.annotation, str):
        return str(param)
    bare = param.replace(annotation=inspect.Parameter.empty, default=inspect.Parameter.empty)
    default = "" if param.default is inspect.Parameter.empty else f" = {param.default!r}"
    return f"{bare}: {param.annotation}{default}"


def _beta_of(one: Query, settings: WorkerSettings) -> str:
    if not settings.xfetch_enabled or one.ttl_seconds < settings.min_ttl_seconds:
        return "none"
    if one.beta_function is not None:
        return "own"
    if one.degree_cypher is None:
        return "plain"
    return settings.refresh_mode.value


def _row_of(one: Query, settings: WorkerSettings) -> tuple[str, ...]:
    record = _record_of(one, settings)
    early = record["beta"] if record["beta"] == "none" else f"{record['beta']}, β0 {record['beta0']:g}"
    params = ", ".join(record["params"]) + (f" (up to {one.batch})" if one.batch is not None else "")
    slots = "all but 1" if one.slots is None else str(one.slots)
    return (
        one.name, str(one.version), params, duration(one.ttl_seconds),
        duration(one.grace_seconds), early, slots, str(one.budget), record["about"].partition("\n")[0],
    )  # fmt: skip
