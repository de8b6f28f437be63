"""Mutated environments: they make settings, or raise the one error, which never shows a password."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest

from api_client.config.environment import Settings, without_password
from api_client.config.settings import ReaderSettings
from api_client.errors import ConfigurationError
from refresher.settings import WorkerSettings
from tests.fuzz.conftest import TIMEOUT_SECONDS, Feed
from tests.fuzz.mutation import Mutator

pytestmark = [pytest.mark.longer, pytest.mark.timeout(TIMEOUT_SECONDS)]

CANARY = "c4nary-s3cret"
BOTH: tuple[type[Settings], ...] = (ReaderSettings, WorkerSettings)
VARIABLES = sorted({name for who in BOTH for name in who.variables()})
TEXTS = (
    "1", "0", "0.5", "-1", "1e3", "5s", "250ms", "1m30s", "1h", "true", "off", "plain", "topology_sensitive", "nan",
    "inf", "16384", "8388608", "cache", "my.name-space_1", "a,b.c", "127.0.0.1", "9090", "1_000", "٣", "1" * 400,
)  # fmt: skip
URLS = (
    "redis://127.0.0.1:6379/0", "rediss://h:6380/1?ssl_ca_certs=/a.pem", "unix:///run/redis.sock?db=1",
    "redis+sentinel://h:26379,i:26379/main/0", "rediss+cluster://a:7000,b:7001", "amqps://h//?ssl_cert_reqs=required",
    "amqp://h:5672/vhost", "bolt://127.0.0.1:7687", "neo4j+s://h?policy=eu", "bolt+s://[::1]:7687",
)  # fmt: skip
# Passwords in their usual places. The text between a : and the @ must not be shown, however the URL is damaged.
SECRET_URLS = (
    f"redis://:{CANARY}@h:6379/0", f"rediss://user:{CANARY}@h:6380/1", f"amqps://user:{CANARY}@h//vhost",
    f"redis+sentinel://u:{CANARY}@h:26379/main/0", f"bolt://neo4j:{CANARY}@h:7687",
)  # fmt: skip
AROUND = ("", "@", ":", "/", "?", "#", "//", "[", "]", "%", " ", ";", ",", "\\", "\n", "@h:1/", ":x@", "&a=b", "é")


def environment(mutator: Mutator) -> dict[str, str]:
    pick = mutator.random.choice
    environ = {}
    for _ in range(mutator.random.randint(1, 4)):
        name = pick(VARIABLES)
        corpus = URLS if name.endswith(("URL", "URI")) and mutator.random.random() < 0.8 else TEXTS
        environ[name] = mutator.of_text(corpus) if mutator.random.random() < 0.8 else pick(corpus)
    return environ


def read(environ: dict[str, str]) -> None:
    for who in BOTH:
        try:
            made = who.from_env(environ)
        except ConfigurationError as error:
            refused = error
        else:
            assert type(made)(**msgspec.structs.asdict(made)) == made
            assert repr(made).startswith(f"{who.__name__}(")
            continue
        # Of two that contradict each other the one that was not set may be named.
        assert refused.variable in environ or "JITTER" in refused.variable
        assert len(str(refused)) < 5_000


def read_secret(mutator: Mutator) -> None:
    """Show a URL with other characters around its password, and with its parts in disorder."""
    pick = mutator.random.choice
    url = pick(SECRET_URLS).replace(CANARY, pick(AROUND) + CANARY + pick(AROUND))
    if mutator.random.random() < 0.5:
        head, _, tail = url.partition(CANARY)
        url = head + CANARY + mutator.of_text([tail])
    shown = [without_password(url)]
    for name in ("CACHE_REDIS_URL", "CACHE_BROKER_URL", "NEO4J_URI"):
        try:
            shown.append(repr(WorkerSettings.from_env({name: url})))
        except ConfigurationError as error:
            shown.append(f"{error} {error!r}")
    if "@" in url.partition(CANARY)[2]:
        assert not any(CANARY in text for text in shown), url


def read_secret_without_its_place(mutator: Mutator) -> None:
    """Show a URL whose @ or colons are missing, or whose password is the value of an option."""
    pick = mutator.random.choice
    url = pick((*SECRET_URLS, f"redis://h/0?token={CANARY}", f"amqp://h//?pw={CANARY}&heartbeat=3"))
    forgotten = pick(("@", ":", "//", "/", ""))
    url = url.replace(forgotten, "", mutator.random.randint(1, 2)) if forgotten else url
    if f"//{CANARY}" in url or f"/{CANARY}" in url or CANARY not in url:
        return  # a host or a path, not a secret
    shown = [without_password(url)]
    for who in BOTH:
        for name in ("CACHE_REDIS_URL", "CACHE_BROKER_URL", "NEO4J_URI"):
            try:
                shown.append(repr(who.from_env({name: url})))
            except ConfigurationError as error:
                shown.append(f"{error} {error!r}")
    assert not any(CANARY in text for text in shown), url


def test_fuzzed_environments_make_settings_or_a_configuration_error(fuzz: Callable[[Feed], None]) -> None:
    fuzz(lambda mutator: read(environment(mutator)))


def test_no_damaged_url_shows_its_password(fuzz: Callable[[Feed], None]) -> None:
    fuzz(read_secret)


def test_no_misplaced_password_in_a_url_is_shown(fuzz: Callable[[Feed], None]) -> None:
    fuzz(read_secret_without_its_place)
