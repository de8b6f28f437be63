"""The registry of queries, with each query's cache policy. A reader can only name a query."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal, TypeAlias, TypeVar

from api_client.config.durations import Duration, seconds, share
from api_client.config.spelling import names_keywords
from api_client.errors import ConfigurationError, InvalidQuery
from api_client.protocol.budget import MAX_CONCURRENCY, MAX_RATE, MIN_RATE, Budget
from api_client.protocol.keys import MAX_VERSION, check_query_name
from api_client.protocol.messages import MAX_BATCH
from api_client.protocol.params import plain
from api_client.protocol.tags import TAGS_ALLOWED, check_tags
from refresher.settings import JITTER_ALLOWED, MAX_JITTER

Loader: TypeAlias = Callable[..., Any]
L = TypeVar("L", bound=Loader)
T = TypeVar("T")

BetaFunction: TypeAlias = Callable[[float, int, float], float]
"""A query's own β: (β0, degree or 0, σ) → effective β, at least 0."""

TagsFunction: TypeAlias = Callable[..., Iterable[str]]
"""A function for a value's tags: (value, params by name) → tags."""

AUTO: Final = "auto"
"""Stands for tags that a worker derives from a load's reads."""

_REQUIRED: Final[Any] = object()
MAX_SAMPLES: Final = 64
MAX_NAME_SETS: Final = 64
MAX_SLOTS: Final = 10_000
NO_BOUNDS: Final = Budget()
PREVIOUS: Final = "previous"
"""The name of a conditional loader's parameter for the previous value."""
MAX_SECONDS: Final = 10 * 365 * 86_400.0


@dataclass(frozen=True, slots=True)
class Query:
    """A registered query. Durations in seconds; ``delta_window`` 0 smooths δ, n takes the mean of the last n.

    ``slots`` is the number of slots of a worker node that it may hold; None for all but one. ``budget`` bounds its
    loads over all workers. If it is ``sensitive``, its params are only in its messages, and in no dead letter.
    ``batch`` is the number of calls that its loader takes at once; None for one, with its params by name. ``tags`` are
    the tags of every value, or a function that returns a value's, or `AUTO`. ``ttl_jitter`` is the largest share of its
    TTL by which a value expires earlier; None for that of the worker's settings. ``negative_ttl_seconds`` is the TTL of
    None and empty values; None for that of others. If it is ``conditional``, its loader gets the previous value.
    ``version_cypher`` returns the source's version before the load.
    """

    name: str
    version: int
    loader: Loader
    ttl_seconds: float
    grace_seconds: float
    beta: float | None
    sigma: float
    degree_cypher: str | None
    beta_function: BetaFunction | None
    delta_window: int
    sensitive: bool = False
    slots: int | None = None
    budget: Budget = NO_BOUNDS
    batch: int | None = None
    tags: tuple[str, ...] | TagsFunction | Literal["auto"] | None = None
    negative_ttl_seconds: float | None = None
    conditional: bool = False
    version_cypher: str | None = None
    ttl_jitter: float | None = None
    _signature: inspect.Signature = field(init=False, repr=False, compare=False)
    _taken: set[frozenset[str]] = field(init=False, repr=False, compare=False, default_factory=set)

    def __post_init__(self) -> None:
        # Once, since inspecting a function takes longer than binding.
        object.__setattr__(self, "_signature", inspect.signature(self.loader))

    @property
    def optional_params(self) -> list[str]:
        """Names of the params that a call may omit."""
        params = list(self._signature.parameters.values())[1:] if self.batch is None else []
        return [one.name for one in params if one.default is not one.empty and one.name != PREVIOUS]

    @property
    def takes(self) -> str | None:
        """The params that its loader takes, in the form ``n,limit=``; None if it takes several calls at once."""
        params = [one.name + "=" * (one.default is not one.empty) for one in self._signature.parameters.values()]
        return None if self.batch is not None else ",".join(params[1:])

    @property
    def has_tags(self) -> bool:
        """True if its entries may have tags."""
        return self.tags is not None

    @property
    def revalidates(self) -> bool:
        """True if a refresh may find its value unchanged."""
        return self.conditional or self.version_cypher is not None

    def check_params(self, params: Mapping[str, Any]) -> None:
        """Raise TypeError if the loader does not take these params; a batch loader takes any."""
        if self.batch is not None:
            return
        # Only the names matter, and most calls have the same ones, while binding takes ten times as long.
        names = frozenset(params)
        if names not in self._taken:
            if self.conditional and PREVIOUS in names:
                raise TypeError(
                    f"{PREVIOUS!r} is no param: the worker gives the loader the previous value by this name"
                )
            self._signature.bind(None, **params, **({PREVIOUS: None} if self.conditional else {}))
            if len(self._taken) < MAX_NAME_SETS:
                self._taken.add(names)


@dataclass(frozen=True, slots=True)
class Loaded:
    """Result of a load; ``degree`` is 0 if the query has none, or its node does not exist.

    ``version`` is the result of the query's ``version_cypher``; None if it has none, or that found nothing. ``tags``
    are the tags of all reads if the query's are `AUTO`, in any number. ``is_outdated`` is True if the load was built on
    an invalidated entry.
    """

    value: Any
    degree: int = 0
    version: Any = None
    tags: tuple[str, ...] = ()
    is_outdated: bool = False


class Registry:
    """Queries by name and version."""

    def __init__(self) -> None:
        self._queries: dict[tuple[str, int], Query] = {}

    def add(self, query: Query) -> None:
        """Register a query.

        Raises:
            ConfigurationError: another function is registered under this name and version, or another budget under this
                name.
        """
        there = self._queries.get((query.name, query.version))
        if there is not None and _origin(there.loader) != _origin(query.loader):
            raise ConfigurationError(
                "@query", f"{query.name!r}, version {query.version}",
                f"the name is taken by {_origin(there.loader)}; give one of them another name or version",
            )  # fmt: skip
        for other in self._queries.values():
            if other.name == query.name and other.version != query.version and other.budget != query.budget:
                raise ConfigurationError(
                    "@query", f"{query.name!r}, version {query.version}",
                    f"its rate or concurrency is not that of version {other.version}; all versions share them",
                )  # fmt: skip
        self._queries[query.name, query.version] = query

    def find(self, name: str, version: int) -> Query | None:
        """Return the query, or None."""
        return self._queries.get((name, version))

    def __iter__(self) -> Iterator[Query]:
        return iter(sorted(self._queries.values(), key=lambda query: (query.name, query.version)))

    def __len__(self) -> int:
        return len(self._queries)


registry: Final = Registry()


@names_keywords()
def query(
    name: str | None = None,
    *,
    ttl: Duration = _REQUIRED,
    grace: Duration | None = None,
    beta: float | None = None,
    sigma: float = 1.0,
    degree: str | None = None,
    beta_function: BetaFunction | None = None,
    delta: str = "smoothed",
    version: int = 1,
    sensitive: bool = False,
    rate: float | None = None,
    concurrency: int | None = None,
    slots: int | None = None,
    batch: int | None = None,
    tags: Collection[str] | TagsFunction | Literal["auto"] | None = None,
    negative_ttl: Duration | None = None,
    conditional: bool = False,
    version_cypher: str | None = None,
    jitter: float | str | None = None,
    into: Registry | None = None,
) -> Callable[[L], L]:
    """Register a loader: ``def loader(tx, **params) -> value``, run in one read transaction.

    The transaction begins with the loader's first ``tx.run``, so a loader without one costs the graph nothing.

    With ``batch`` the loader is ``def loader(tx, calls: list[dict]) -> list``, with these names: it gets the params of
    several calls, and returns one value for each, in order. Refreshes that are due together then travel and load
    together; readers see no difference.

    Args:
        name: the name by which readers request it, which may be an Enum's member. Default: the function's name.
        ttl: the time for which a value is fresh. With 0 values are never cached, but only returned to their waiting
            readers.
        grace: the further time for which a stale value may be served, while it is refreshed or the graph is down. With
            0 a value is not served beyond its TTL, and reads wait. Required unless ttl is 0, because a value can be as
            old as both together, and only its users know the acceptable age.
        beta: β0 of this query; default CACHE_XFETCH_BETA.
        sigma: the query's volatility, a factor of β.
        degree: Cypher that returns one number, the degree of the query's node, for the same params; run in the same
            transaction.
        beta_function: (β0, degree or 0, σ) → β, in place of the mode's formula.
        delta: the way to learn δ: ``"smoothed"`` (as TCP smooths round trips), ``"last"``, or ``"mean:n"``, n ≤ 64.
        version: the version of the value's shape, part of the key, so that a new shape is never read as the old one.
        sensitive: True if params may be personal or secret. Logs and monitors never show any query's params; the dead
            letter of a sensitive query also omits the params and the failure's text, which may quote them.
        rate: the number of loads of this query that may begin per second, over all workers, 0.001 to 10000; default:
            not limited.
        concurrency: the number of its loads that may be in progress at a time, over all workers, 1 to 10000; default:
            not limited. A refresh beyond either limit waits up to a second, or goes back into its queue for some
            seconds; misses go before stale refreshes, and these before early ones. A batch is one load.
        slots: the number of slots of one worker node, over all its pool's processes or threads, that loads of this
            query may hold at a time, 1 to 10000; default: all but one, at least 1. So hanging loads leave a slot to
            other queries. A refresh without a free slot goes back into its queue for some seconds.
        batch: the most calls that the loader takes at once, 1 to 100, with one transaction and one time limit.
            ``degree`` is then Cypher that gets them as ``$calls`` and returns one row with a number for each, in order.
        tags: names of what a value depends on, at most 64 texts of 1 to 200 bytes: the same for every value, or a
            function ``(value, **params) -> tags``, called in the worker for each value after its load.
            `invalidate_tags` with one of them reaches the entry. With ``"auto"`` they are derived from the loader's
            reads through ``tx``, for the change feed.
        negative_ttl: the time for which None and empty values (text, bytes, lists, sets, dicts) are fresh; default: as
            for others. A loader may return a `Result`, which sets TTL, grace and tags of its value.
        conditional: True to give the loader ``previous=``, a `Previous` or None (with ``batch`` a list with one for
            each call), and to let it return `UNCHANGED`. Each refresh then reads the entry's value, which takes another
            round trip.
        version_cypher: Cypher that returns one row for the same params, the version of the loader's source; run before
            the loader, in the same transaction. If all columns are the same as at the previous load, the value counts
            as unchanged, and the loader is not called. If there is no row, or only nulls, it is called. With ``batch``
            it gets ``$calls``, like ``degree``. A changed loader needs a new ``version``.
        jitter: the largest share of its TTL by which a value expires earlier, at random, as ``"10%"`` or 0.1; at most a
            half, 0 for never. Default: CACHE_TTL_JITTER.
        into: the registry; default: the one that workers use.

    Raises:
        ConfigurationError: an argument is wrong; the message states the allowed values.
    """
    check = _Arguments(locals())
    make = functools.partial(Query, **check.fields())

    def register(loader: L) -> L:
        check.name(loader)
        check.loader(loader)
        (registry if into is None else into).add(make(name=check.query, loader=loader))
        return loader

    return register


def _check_own_tags(tags: object) -> tuple[str, ...]:
    if isinstance(tags, str):
        raise ValueError(f"expected {AUTO!r}, {TAGS_ALLOWED}, or a function of the value")
    return check_tags(tags)


class _Arguments:
    """Checks the arguments of one `query`: each method returns a plain value, or raises a ConfigurationError."""

    def __init__(self, given: Mapping[str, Any]) -> None:
        self._given = dict(given)
        self.query: str = ""
        name, ttl = given["name"], given["ttl"]
        if callable(name) and ttl is _REQUIRED:
            allowed = 'a decorator with arguments: @query(ttl="5m", grace="1h")'
            raise ConfigurationError("@query", _origin(name), f"expected {allowed}")
        if name is not None:
            self.name(name)
        if ttl is _REQUIRED:
            raise ConfigurationError(self.of("ttl"), "(none)", 'expected how long a value is fresh: ttl="5m"')

    def fields(self) -> dict[str, Any]:
        """Return the fields of a `Query`, except for name and loader."""
        return {
            "version": self.whole("version", MAX_VERSION),
            "ttl_seconds": self.duration("ttl"),
            "grace_seconds": self.grace(),
            "beta": self.optional("beta", self.factor),
            "sigma": float(self.factor("sigma")),
            "degree_cypher": self.optional("degree", self.cypher, "one number"),
            "beta_function": self.beta_function(),
            "delta_window": self.delta_window(),
            "sensitive": self.flag("sensitive"),
            "slots": self.optional("slots", self.whole, MAX_SLOTS, "a whole number of slots, "),
            "budget": Budget(
                self.optional("rate", self.rate),
                self.optional("concurrency", self.whole, MAX_CONCURRENCY, "loads at once, "),
            ),
            "batch": self.optional("batch", self.whole, MAX_BATCH, "a whole number of calls, "),
            "tags": self.tags(),
            "negative_ttl_seconds": self.optional("negative_ttl", self.duration),
            "conditional": self.flag("conditional"),
            "version_cypher": self.optional("version_cypher", self.cypher, "one row"),
            "ttl_jitter": self.optional("jitter", self.jitter),
        }

    def name(self, given: object) -> None:
        """Check the query's name, or if it has none yet take its loader's."""
        if self.query:
            return
        name = getattr(given, "__name__", given) if callable(given) else given
        try:
            self.query = check_query_name(name)
        except InvalidQuery as error:
            raise ConfigurationError("@query", repr(name)[:80], str(error)) from error

    def of(self, option: str) -> str:
        """Return an option's name for errors."""
        return f"{option} of @query({repr(self.query) if self.query else ''})"

    def require(self, option: str, value: object, valid: bool, allowed: str) -> None:  # noqa: FBT001
        if not valid:
            raise ConfigurationError(self.of(option), repr(value)[:80], f"expected {allowed}")

    def optional(self, option: str, check: Callable[..., T], *args: object) -> T | None:
        return None if self._given[option] is None else check(option, *args)

    def whole(self, option: str, most: int, unit: str = "") -> int:
        value: int = plain(self._given[option])
        is_whole = isinstance(value, int) and not isinstance(value, bool)
        self.require(option, value, is_whole and 1 <= value <= most, f"{unit}1 to {most}")
        return value

    def flag(self, option: str) -> bool:
        value: bool = plain(self._given[option])
        self.require(option, value, isinstance(value, bool), "True or False")
        return value

    def rate(self, option: str) -> float:
        value: float = plain(self._given[option])
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        allowed = f"loads a second, {MIN_RATE:g} to {MAX_RATE:g}"
        self.require(option, value, is_number and MIN_RATE <= value <= MAX_RATE, allowed)
        return value

    def factor(self, option: str) -> float:
        value: float = plain(self._given[option])
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        self.require(option, value, is_number and 0 < value <= 1000, "more than 0, up to 1000")
        return value

    def parsed(self, option: str, parse: Callable[[Any], T]) -> T:
        """Return an option's value parsed by ``parse``, whose ValueError states the allowed values."""
        value = self._given[option]
        try:
            return parse(value)
        except ValueError as error:
            raise ConfigurationError(self.of(option), repr(value)[:80], str(error)) from error

    def duration(self, option: str) -> float:
        duration_seconds = self.parsed(option, seconds)
        self.require(option, self._given[option], duration_seconds <= MAX_SECONDS, "at most ten years")
        return duration_seconds

    def grace(self) -> float:
        if self._given["grace"] is None:
            allowed = 'a duration, for how much longer than its TTL a stale value may be served: "1h", or 0 for never'
            self.require("grace", None, seconds(self._given["ttl"]) == 0, allowed)
            return 0.0
        return self.duration("grace")

    def jitter(self, option: str) -> float:
        found = self.parsed(option, share)
        self.require(option, self._given[option], found <= MAX_JITTER, JITTER_ALLOWED)
        return found

    def cypher(self, option: str, what: str) -> str:
        value: str = self._given[option]
        self.require(option, value, isinstance(value, str) and value.strip() != "", f"Cypher that returns {what}")
        return value

    def beta_function(self) -> BetaFunction | None:
        function: BetaFunction | None = self._given["beta_function"]
        valid = function is None or callable(function)
        self.require("beta_function", function, valid, "a function (β0, degree or 0, σ) → β")
        return function

    def tags(self) -> tuple[str, ...] | TagsFunction | Literal["auto"] | None:
        value: Collection[str] | TagsFunction | Literal["auto"] | None = self._given["tags"]
        if value is None or callable(value):
            return value
        if value == AUTO:
            return "auto"
        return self.parsed("tags", _check_own_tags)

    def tags_function(self, function: TagsFunction, params: Mapping[str, object]) -> None:
        try:
            valid = inspect.signature(function).bind_partial(None, **params) is not None
        except TypeError:
            valid = False
        except ValueError:  # a builtin without a signature
            return
        call = ", ".join(("value", *(f"{name}=…" for name in params)))
        self.require("tags", function, valid, f"a function that may be called as f({call})")

    def delta_window(self) -> int:
        delta = self._given["delta"]
        if delta in {"smoothed", "last"}:
            return 0 if delta == "smoothed" else 1
        kind, _, count = str(delta).partition(":")
        valid = kind == "mean" and count.isdecimal() and 1 <= int(count) <= MAX_SAMPLES
        self.require("delta", delta, valid, f'"smoothed", "last" or "mean:n" with n from 1 to {MAX_SAMPLES}')
        return int(count)

    def loader(self, loader: Loader) -> None:
        is_batch, conditional, tags = self._given["batch"] is not None, self._given["conditional"], self._given["tags"]
        is_async = any(
            inspect.iscoroutinefunction(one) or inspect.isasyncgenfunction(one)
            for one in (loader, getattr(type(loader), "__call__", None))  # noqa: B004 - not whether, but which
        )
        allowed = "a plain function: its tx is a synchronous one, in a worker"
        self.require("the loader", loader, not is_async, allowed)
        first = next(iter(_parameters(loader)), None)
        is_method = first is not None and first.name in {"self", "cls"}
        self.require("the loader", loader, not is_method, "a function: a method has no instance in a worker")
        named: dict[str, Any] = {PREVIOUS: None} if conditional else {}
        if is_batch:
            shape = f"three: f(tx, calls, {PREVIOUS})" if conditional else "two: f(tx, calls)"
            allowed = f"a function of {shape}, with batch, where calls is a list with the params of each call"
            self.require("the loader", loader, _takes_calls(loader, named), allowed)
        else:
            shape = f"f(tx, {PREVIOUS}, **params)" if conditional else "f(tx, **params)"
            self.require("the loader", loader, _takes_tx(loader, named), f"a function of a transaction: {shape}")
        by_position = [one.name for one in _parameters(loader)[1:] if one.kind is one.POSITIONAL_ONLY]
        allowed = f"a function whose params have names; {', '.join(by_position)} can be given by position alone"
        self.require("the loader", loader, not by_position, allowed)
        if callable(tags):
            self.tags_function(tags, {} if is_batch else _required_params(loader))


def _parameters(loader: object) -> list[inspect.Parameter]:
    """Return a loader's parameters, as far as they are known."""
    try:
        return list(inspect.signature(loader).parameters.values()) if callable(loader) else []
    except (TypeError, ValueError):
        return []


def _takes_tx(loader: object, named: Mapping[str, Any]) -> bool:
    """Return whether a loader takes a transaction by position, the ``named`` ones by name, and possibly more."""
    try:
        return callable(loader) and inspect.signature(loader).bind_partial(None, **named) is not None
    except (TypeError, ValueError):  # it does not take these, or is a builtin without a signature
        return False


def _takes_calls(loader: object, named: Mapping[str, Any]) -> bool:
    """Return whether a loader takes a transaction and calls, and requires no more besides the ``named`` ones.

    It goes by the name, because only that tells it from a loader of one param, ``f(tx, person_id)``, whose loads would
    fail or, worse, take the list for the param.
    """
    try:
        return callable(loader) and "calls" in list(inspect.signature(loader).bind(None, None, **named).arguments)[1:]
    except (TypeError, ValueError):
        return False


def _required_params(loader: Loader) -> dict[str, None]:
    """Return the names of the params that a checked loader requires."""
    takes = _parameters(loader)[1:]  # the first parameter is the transaction
    by_name = {inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY}
    names = (one.name for one in takes if one.kind in by_name and one.default is one.empty)
    return dict.fromkeys(name for name in names if name != PREVIOUS)


def _origin(loader: Loader) -> str:
    return f"{getattr(loader, '__module__', '?')}.{getattr(loader, '__qualname__', repr(loader))}"
