"""Settings of readers, and those shared by readers and workers."""

from __future__ import annotations

from typing import Annotated, Final

from api_client.config.broker_url import is_rabbitmq
from api_client.config.environment import (
    Milliseconds,
    PositiveMilliseconds,
    PositiveSeconds,
    SecondOrMore,
    Settings,
    Switch,
    Timeout,
    Url,
    env,
)
from api_client.config.redis_url import Topology, read_url
from api_client.config.url_checks import broker_url_fault, cache_url_fault
from api_client.errors import ConfigurationError
from api_client.protocol.keys import NAMESPACE_ALLOWED

MEBIBYTE: Final = 1024 * 1024
MAX_STRING_BYTES: Final = 512 * MEBIBYTE
_VALUE_ALLOWED: Final = f"bytes, 1 to {MAX_STRING_BYTES} (what a Redis string can hold)"


class SharedSettings(Settings, frozen=True, kw_only=True):
    """Settings that reader and worker must agree on: the cache, the broker, and the lease record's times."""

    redis_url: Annotated[
        Url,
        env(
            "CACHE_REDIS_URL",
            "redis://…, redis+sentinel://…, redis+cluster://…, the same with rediss, or unix://…",
            pattern=r"^(rediss?(\+sentinel|\+cluster)?|unix)://",
            extra={"fault_of": cache_url_fault},
        ),
    ] = "redis://127.0.0.1:6379/0"
    broker_url: Annotated[
        Url,
        env(
            "CACHE_BROKER_URL",
            "redis://…, redis+sentinel://…, the same with rediss, unix://…, amqp://… or amqps://…",
            fallback="CELERY_BROKER_URL",
            pattern=r"^(rediss?(\+sentinel)?|unix|amqps?|pyamqp)://",
            extra={"fault_of": broker_url_fault},
        ),
    ] = "redis://127.0.0.1:6379/1"
    namespace: Annotated[str, env("CACHE_NAMESPACE", NAMESPACE_ALLOWED, pattern=r"\A[A-Za-z0-9_.-]{1,64}\Z")] = "cache"
    queue_ttl_seconds: Annotated[PositiveSeconds, env("CACHE_QUEUE_TTL")] = 60.0
    # At least a second, since without a pause a failing query would be loaded again at every read.
    cooling_seconds: Annotated[SecondOrMore, env("CACHE_COOLING")] = 30.0
    record_retention_seconds: Annotated[PositiveSeconds, env("CACHE_RECORD_RETENTION")] = 60.0
    jitter_min_ms: Annotated[Milliseconds, env("STAMPEDE_JITTER_MIN_MS")] = 0.0
    jitter_max_ms: Annotated[Milliseconds, env("STAMPEDE_JITTER_MAX_MS")] = 50.0
    max_value_bytes: Annotated[int, env("CACHE_MAX_VALUE_BYTES", _VALUE_ALLOWED, gt=0, le=MAX_STRING_BYTES)] = (
        8 * MEBIBYTE
    )
    otel: Annotated[Switch, env("CACHE_OTEL")] = False

    def __post_init__(self) -> None:
        super().__post_init__()
        read_url(self.redis_url)
        if not is_rabbitmq(self.broker_url):
            read_url(self.broker_url, self.variable_of("broker_url"))
        if self.jitter_max_ms < self.jitter_min_ms:
            raise ConfigurationError(
                "STAMPEDE_JITTER_MAX_MS",
                repr(self.jitter_max_ms),
                f"expected {self.jitter_min_ms} or more, as STAMPEDE_JITTER_MIN_MS",
            )


class ReaderSettings(SharedSettings, frozen=True, kw_only=True):
    """The settings of a reader, from the environment (`Settings.from_env`) or from keywords."""

    redis_timeout_seconds: Annotated[Timeout, env("CACHE_REDIS_TIMEOUT")] = 0.25
    redis_reply_timeout_seconds: Annotated[Timeout, env("CACHE_REDIS_REPLY_TIMEOUT")] = 5.0
    wait_poll_ms: Annotated[PositiveMilliseconds, env("STAMPEDE_WAIT_POLL_MS")] = 10.0
    wait_timeout_ms: Annotated[PositiveMilliseconds, env("STAMPEDE_WAIT_TIMEOUT_MS")] = 5000.0
    queue_size: Annotated[int, env("CACHE_XFETCH_QUEUE_SIZE", "a whole number, 0 or more", ge=0)] = 100
    local_max_entries: Annotated[int, env("CACHE_LOCAL_MAX_ENTRIES", "a whole number, 0 (off) or more", ge=0)] = 0
    local_max_bytes: Annotated[int, env("CACHE_LOCAL_MAX_BYTES", "bytes, 1 or more", gt=0)] = 64 * MEBIBYTE
    local_max_age_seconds: Annotated[Timeout, env("CACHE_LOCAL_MAX_AGE")] = 1.0
    metrics: Annotated[Switch, env("CACHE_METRICS")] = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.local_max_entries and read_url(self.redis_url).topology is Topology.CLUSTER:
            # Each node pushes invalidations only for its own keys.
            allowed = "expected 0 (off) while CACHE_REDIS_URL names a cluster"
            raise ConfigurationError("CACHE_LOCAL_MAX_ENTRIES", repr(self.local_max_entries), allowed)
