"""Settings of a worker: all policy, which readers don't need, and the time limits derived from the budget."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Final, TypeAlias
from urllib.parse import urlsplit

import msgspec

from api_client.config.environment import DURATION, PositiveMilliseconds, PositiveSeconds, Seconds, Switch, env
from api_client.config.settings import MAX_STRING_BYTES, SharedSettings
from api_client.config.url_checks import is_file, is_number_of_a_port
from api_client.errors import ConfigurationError
from api_client.protocol.budget import MAX_CONCURRENCY, MAX_RATE, MIN_RATE, Budget
from api_client.protocol.xfetch import MAX_DRAW_DIGITS


class RefreshMode(StrEnum):
    """Formula of β: `plain` (β0·σ) or `topology_sensitive` (β0·(1 + ln d)·σ)."""

    PLAIN = "plain"
    TOPOLOGY_SENSITIVE = "topology_sensitive"


MAX_RETRY_PAUSE_SECONDS: Final = 15
SOFT_LIMIT_MARGIN_SECONDS: Final = 5.0
HARD_LIMIT_MARGIN_SECONDS: Final = 15.0
LEASE_LIMIT_MARGIN_SECONDS: Final = 5.0

# No user, no password and, apart from a routing context, no query: the driver would refuse them at the first load, with
# an error that shows the whole URI.
_SERVER: Final = r"(?:\[[0-9A-Fa-f:.%]+\]|[^\s/?#@:\[\]]+)(?::\d{1,5})?/?"
NEO4J_URI_PATTERN: Final = rf"\A(?:bolt(?:\+s|\+ssc)?://{_SERVER}|neo4j(?:\+s|\+ssc)?://{_SERVER}(?:\?[^\s#@]*)?)\Z"
NEO4J_URI_ALLOWED: Final = (
    "bolt://host:port, neo4j://…, bolt+s://… or neo4j+s://…, without user and password, which go into NEO4J_USER and "
    "NEO4J_PASSWORD"
)


def neo4j_uri_fault(uri: str) -> str | None:
    """Return the allowed form if a URI of NEO4J_URI's pattern is wrong, otherwise None."""
    try:
        parts = urlsplit(uri)
    except ValueError:
        return NEO4J_URI_ALLOWED
    port = parts.netloc.rpartition("]")[2].partition(":")[2]
    if port and not is_number_of_a_port(port):
        return f"a port from 1 to 65535: {NEO4J_URI_ALLOWED}"
    context = [pair.partition("=") for pair in parts.query.split("&")] if "?" in uri else []
    names = [name for name, _, _ in context]
    if not all(name and value for name, _, value in context) or len(set(names)) < len(names) or "address" in names:
        return f"a routing context of name=value, each name once and none of them address: {NEO4J_URI_ALLOWED}"
    return None


_NEO4J_URI: Final = {"url": True, "fault_of": neo4j_uri_fault}
Address: TypeAlias = Annotated[str, msgspec.Meta(min_length=1, description="an address to listen on")]
RATE_ALLOWED: Final = f"loads a second, 0 (not limited), or {MIN_RATE:g} to {MAX_RATE:g}"
CONCURRENCY_ALLOWED: Final = f"loads at once, 0 (not limited) to {MAX_CONCURRENCY}"
BUDGET_ALLOWED: Final = '0.1 s to 1 h, as seconds or text such as "30s"'
DIGITS_ALLOWED: Final = f"a whole number of digits, 0 (all) to {MAX_DRAW_DIGITS}"
Count: TypeAlias = Annotated[int, msgspec.Meta(gt=0, le=10_000, description="a whole number, 1 to 10000")]
MAX_JITTER: Final = 0.5
JITTER_ALLOWED: Final = '0 to a half, as "10%" or 0.1'
TTL_JITTER: Final = 0.0
"""0, since in the simulation a tenth shortens the echo of a flush by at most a thirtieth, and costs a twentieth more
loads. XFetch spreads popular keys anyway (docs/how-to/tune.md)."""
Port: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=65535, description="a port, 1 to 65535, or 0 (none)")]


class WorkerSettings(SharedSettings, frozen=True, kw_only=True):
    """The settings of a worker, from the environment (`from_env`) or from keywords.

    The time limits nest: transaction < budget of an attempt < soft limit < hard limit < lease limit, and hard limit
    plus the longest pause < visibility timeout. All are derived from the budget, so they can't contradict each other.
    """

    queries: Annotated[str, env("REFRESHER_QUERIES", "module names, comma-separated")] = ""
    neo4j_uri: Annotated[str, env("NEO4J_URI", NEO4J_URI_ALLOWED, pattern=NEO4J_URI_PATTERN, extra=_NEO4J_URI)] = (
        "bolt://127.0.0.1:7687"
    )
    neo4j_user: Annotated[str, env("NEO4J_USER")] = "neo4j"
    neo4j_password: Annotated[str, env("NEO4J_PASSWORD", secret=True)] = ""
    neo4j_database: Annotated[str, env("NEO4J_DATABASE")] = ""
    neo4j_ca_certs: Annotated[str, env("NEO4J_CA_CERTS", "a file of certificates")] = ""
    xfetch_enabled: Annotated[Switch, env("CACHE_XFETCH_ENABLED")] = True
    beta: Annotated[float, env("CACHE_XFETCH_BETA", "more than 0, up to 1000 (0.5 to 2.0 is usual)", gt=0, le=1000)] = (
        1.0
    )
    min_ttl_seconds: Annotated[Seconds, env("CACHE_XFETCH_MIN_TTL")] = 60.0
    ttl_jitter: Annotated[
        float,
        env("CACHE_TTL_JITTER", f"a share of the TTL, {JITTER_ALLOWED}", ge=0, le=MAX_JITTER, extra={"share": True}),
    ] = TTL_JITTER
    workers: Annotated[Count, env("CACHE_XFETCH_WORKERS")] = 4
    # Over all workers of the namespace; @query(rate=…, concurrency=…) limits a single query.
    refresh_rate: Annotated[float, env("CACHE_REFRESH_RATE", RATE_ALLOWED, ge=0, le=MAX_RATE)] = 0.0
    refresh_concurrency: Annotated[
        int, env("CACHE_REFRESH_CONCURRENCY", CONCURRENCY_ALLOWED, ge=0, le=MAX_CONCURRENCY)
    ] = 0
    budget_seconds: Annotated[float, env("CACHE_XFETCH_TIMEOUT", BUDGET_ALLOWED, ge=0.1, le=3600, extra=DURATION)] = (
        30.0
    )
    retry_enabled: Annotated[Switch, env("CACHE_XFETCH_RETRY_ENABLED")] = True
    retry_max: Annotated[int, env("CACHE_XFETCH_RETRY_MAX", "a whole number, 0 to 100", ge=0, le=100)] = 3
    # With less than CACHE_COOLING every pause is CACHE_COOLING.
    cooling_max_seconds: Annotated[PositiveSeconds, env("CACHE_COOLING_MAX")] = 3600.0
    retry_backoff: Annotated[float, env("CACHE_XFETCH_RETRY_BACKOFF", "a number, 1 to 100", ge=1, le=100)] = 2.0
    draw_digits: Annotated[int, env("CACHE_XFETCH_RND_PRECISION", DIGITS_ALLOWED, ge=0, le=MAX_DRAW_DIGITS)] = 0
    refresh_mode: Annotated[RefreshMode, env("TSPR_REFRESH_MODE", "topology_sensitive or plain")] = RefreshMode.PLAIN
    compress_min_bytes: Annotated[
        int, env("CACHE_COMPRESS_MIN_BYTES", f"bytes, 0 (never) to {MAX_STRING_BYTES}", ge=0, le=MAX_STRING_BYTES)
    ] = 16 * 1024
    lease_floor_ms: Annotated[PositiveMilliseconds, env("STAMPEDE_LOCK_TIMEOUT_MS")] = 5000.0
    show_failures: Annotated[Switch, env("CACHE_SHOW_FAILURES")] = False
    feed: Annotated[Switch, env("CACHE_FEED")] = False
    metrics_port: Annotated[Port, env("CACHE_METRICS_PORT")] = 0
    metrics_address: Annotated[Address, env("CACHE_METRICS_ADDRESS")] = "127.0.0.1"
    health_port: Annotated[Port, env("CACHE_HEALTH_PORT")] = 0
    health_address: Annotated[Address, env("CACHE_HEALTH_ADDRESS")] = "127.0.0.1"

    def __post_init__(self) -> None:
        super().__post_init__()
        if 0 < self.refresh_rate < MIN_RATE:
            raise ConfigurationError("CACHE_REFRESH_RATE", repr(self.refresh_rate), f"expected {RATE_ALLOWED}")
        if self.neo4j_ca_certs and "+s://" not in self.neo4j_uri:
            raise ConfigurationError(
                "NEO4J_CA_CERTS",
                repr(self.neo4j_ca_certs)[:100],
                "expected a file, with bolt+s:// or neo4j+s:// in NEO4J_URI",
            )
        if self.neo4j_ca_certs and not is_file(self.neo4j_ca_certs):
            raise ConfigurationError("NEO4J_CA_CERTS", repr(self.neo4j_ca_certs)[:100], "expected a file (PEM)")

    @property
    def query_modules(self) -> tuple[str, ...]:
        """Names of the modules that register queries."""
        return tuple(name.strip() for name in self.queries.split(",") if name.strip())

    @property
    def budget(self) -> Budget:
        """The budget of all loads of the namespace."""
        return Budget(self.refresh_rate or None, self.refresh_concurrency or None)

    @property
    def max_attempts(self) -> int:
        """Number of attempts of a refresh, including the first."""
        return 1 + (self.retry_max if self.retry_enabled else 0)

    @property
    def transaction_timeout_seconds(self) -> float:
        """Time limit of a read transaction on the server: nine tenths of the budget."""
        return self.budget_seconds * 0.9

    @property
    def soft_limit_seconds(self) -> float:
        """Time after which Celery raises SoftTimeLimitExceeded in the task."""
        return self.budget_seconds + SOFT_LIMIT_MARGIN_SECONDS

    @property
    def hard_limit_seconds(self) -> float:
        """Time after which the process ends: Celery kills a prefork pool's, any other ends itself."""
        return self.budget_seconds + HARD_LIMIT_MARGIN_SECONDS

    @property
    def lease_limit_seconds(self) -> float:
        """Time beyond which no lease is renewed: by then the run's process has ended, and the end has been recorded."""
        return self.hard_limit_seconds + LEASE_LIMIT_MARGIN_SECONDS

    @property
    def visibility_timeout_seconds(self) -> int:
        """Time after which Redis' transport redelivers unacknowledged messages: more than hard limit and pause."""
        return round(3 * (self.hard_limit_seconds + MAX_RETRY_PAUSE_SECONDS))
