"""Wrong URLs: each is one error at the start, for readers and workers, before anything is sent."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from api_client import AsyncCacheClient, CacheClient, ConfigurationError, ReaderSettings
from api_client.config.environment import Settings
from refresher.settings import WorkerSettings
from refresher.worker.app import make_app

CANARY = "c4nary-s3cret"
CACHE, BROKER, GRAPH = "CACHE_REDIS_URL", "CACHE_BROKER_URL", "NEO4J_URI"

# variable, wrong value, a part of the error's text on what is allowed
TABLE = [
    (CACHE, f"redis://u:{CANARY}@h:notaport/0", "port 1 to 65535"),
    (CACHE, f"redis://u:{CANARY}@h:0/0", "port 1 to 65535"),
    (CACHE, f"redis://u:{CANARY}@h:65536/0", "port 1 to 65535"),
    (CACHE, "redis://h:/0", "port 1 to 65535"),
    (CACHE, "redis://:6379/0", "host or host:port"),
    (CACHE, "redis:///0", "host or host:port"),
    (CACHE, "redis://a,b/0", "host or host:port"),
    (CACHE, "redis://[::1/0", "address that can be read"),
    (CACHE, "redis://h/zero", "number of a database"),
    (CACHE, "redis://h/0/1", "number of a database"),
    (CACHE, "redis://h/0?bogus=1", "option"),
    (CACHE, "redis://h/0?socket_timeout=60", "option"),
    (CACHE, "redis://h/0#1", "percent-encoded"),
    (CACHE, "redis://h\n/0", "percent-encoded"),
    (CACHE, f"redis://:{CANARY}#x@h/0", "percent-encoded"),
    (CACHE, f"redis://:{CANARY}/x@h/0", "port 1 to 65535|percent-encoded"),
    (CACHE, f"redis://:{CANARY}?x@h/0", "port 1 to 65535|option"),
    (CACHE, f"redis://:{CANARY}%zz@h/0", "a % only before two hexadecimal digits"),
    (CACHE, f"redis://:{CANARY}%ff@h/0", "percent-encoded"),
    (CACHE, "rediss://h/0?ssl_ca_certs=/no/such.pem", "a file|no file"),
    (CACHE, f"rediss://h/0?ssl_ca_certs=/{'x' * 300}", "a file|no file"),  # too long for a name
    (CACHE, "rediss://h/0?ssl_certfile=", "a file|no file"),
    (CACHE, "rediss://h/0?ssl_cert_reqs=perhaps", "required, optional or none"),
    (CACHE, "rediss://h/0?ssl_check_hostname=x", "true or false"),
    (CACHE, "rediss://h/0?ssl_what=1", "option"),
    (CACHE, "redis://h/0?ssl_ca_certs=/etc/hostname", "option"),
    (CACHE, "redis://h/0?db=1", "option"),
    (CACHE, "redis://h?db=one", "number of a database"),
    (CACHE, f"redis://h?password={CANARY}&password={CANARY}", "each once"),
    (CACHE, "redis://h?db", "number of a database"),
    (CACHE, "redis://h?&", "options as name=value"),
    (CACHE, "unix://", "unix:///path"),
    (CACHE, "unix://host/path", "unix:///path"),
    (CACHE, "unix:///run/redis.sock?db=x", "number of a database"),
    (CACHE, f"redis+sentinel://u:{CANARY}@a:1,b:x/m/0", "host or host:port"),
    (CACHE, f"redis+sentinel://u:{CANARY}@a,,b/m", "host or host:port"),
    (CACHE, f"redis+sentinel://u:{CANARY}@a,[::1/m", "IPv6 in brackets"),
    (CACHE, f"redis+sentinel://a/m/0?sentinel_password={CANARY}&bogus=1", "option"),
    (CACHE, f"redis+sentinel://u:{CANARY}@a", "the name that the Sentinels have"),
    (CACHE, f"redis+sentinel://u:{CANARY}@a/m/zero", "a number of a database"),
    (CACHE, "rediss+sentinel://a/m?ssl_ca_certs=/no/such.pem", "a file"),
    (CACHE, f"redis+cluster://u:{CANARY}@a:1,b:99999", "host or host:port"),
    (CACHE, "redis+cluster://a/1", "one database"),
    (CACHE, "rediss+cluster://a?ssl_cert_reqs=x", "required, optional or none"),
    (CACHE, "redis+sentinel:///m", "host:port"),
    (CACHE, "redis+sentinel://h:70000/m", "host:port"),
    (CACHE, f"redis+cluster://h?sentinel_password={CANARY}", "no Sentinel's password"),
    (CACHE, "redis+cluster://", "host:port"),
    (CACHE, "redis+nodes://h/m", "redis"),
    (CACHE, "sentinel://h/m", "redis"),
    # One parser reads both variables; what each allows differs.
    (BROKER, f"redis://u:{CANARY}@h:notaport/0", "port 1 to 65535"),
    (BROKER, "redis://h/0?db=1", "no option"),
    (BROKER, "rediss://h/0?ssl_cert_reqs=perhaps", "required, optional or none for ssl_cert_reqs"),
    (BROKER, "amqps://h//?ssl_version=3", "no option but heartbeat, login_method, ssl_ca_certs"),
    (BROKER, f"amqps://u:{CANARY}@h//?ssl_ca_certs=/no/such.pem", "for ssl_ca_certs"),
    (BROKER, f"amqp://u:{CANARY}@h:x//", "port 1 to 65535"),
    (BROKER, "amqp://", "host or host:port"),
    (BROKER, "amqp://h//?bogus=1", "option"),
    (BROKER, "amqp://h//?heartbeat=soon", "whole seconds"),
    (BROKER, "amqp://h//?login_method=NONE", "PLAIN, AMQPLAIN or EXTERNAL"),
    (BROKER, f"amqp://u:{CANARY}%@h//", "a % only before"),
    (BROKER, f"amqp://u:{CANARY}@a//;amqp://u:{CANARY}@b:x//", "port 1 to 65535"),
    (BROKER, f"redis://:{CANARY}@a/0;redis://:{CANARY}@b/0", "one URL|percent-encoded"),
    (BROKER, "amqps://a//;amqps://b//", "one URL"),
    (BROKER, f"redis+sentinel://:{CANARY}@one,two", "the name that the Sentinels have for the master"),
    (BROKER, f"redis+sentinel://one/m/x?sentinel_password={CANARY}", "a number of a database after the master's name"),
    (BROKER, "redis+sentinel://one:99999/m", "port 1 to 65535"),
    (BROKER, "redis+sentinel://one/m?client_name=x", "no option but sentinel_username, sentinel_password"),
    (BROKER, "rediss+sentinel://one/m?ssl_ca_certs=/no", "that is there for ssl_ca_certs"),
    (BROKER, "redis+cluster://one:7000", r"redis://…, redis\+sentinel://…, the same with rediss, unix://…"),
    (BROKER, "sentinel://one:26379", r"redis://…, redis\+sentinel://…"),
    (BROKER, "unix://host/x", "unix:///path/of/the/socket"),
    (BROKER, "unix:///x?virtual_host=1", "no option but db"),
    (GRAPH, "bolt://h:0", "a port from 1 to 65535"),
    (GRAPH, "bolt://h:99999", "a port from 1 to 65535"),
    (GRAPH, "bolt://[:21]:7687", "bolt://host:port"),
    (GRAPH, "neo4j://h?a", "name=value"),
    (GRAPH, "neo4j://h?a=1&a=2", "each name once"),
    (GRAPH, "neo4j://h?address=x", "none of them address"),
    (GRAPH, f"neo4j://u:{CANARY}@h", "NEO4J_USER and NEO4J_PASSWORD"),
]
STARTS: dict[str, Callable[[], object]] = {
    "reader": CacheClient.from_env,
    "async reader": AsyncCacheClient.from_env,
    "worker": make_app,
}
RIGHT = [
    (CACHE, "redis://h"), (CACHE, "redis://h:6379/"), (CACHE, "redis://u:p%40ss%2F%C3%A4@[::1]:1/15"),
    (CACHE, "redis://h?db=3&client_name=me&username=u&password=p%20w"),
    (CACHE, "rediss://h?ssl_cert_reqs=CERT_REQUIRED&ssl_check_hostname=False&ssl_ca_certs={file}&ssl_ca_path={folder}"),
    (CACHE, "unix:///run/redis.sock"), (CACHE, "unix://:p%40@/run/redis.sock?db=3"),
    (CACHE, "redis+sentinel://u:p@a,[::1]:2/my%20m/3?sentinel_password=p%26&sentinel_username=u"),
    (CACHE, "rediss+cluster://u:p@a:1,b?ssl_ca_certs={file}"), (CACHE, "redis+cluster://[::1]:1,[fe80::2]"),
    (BROKER, "redis://:p%25@h:1/2"), (BROKER, "rediss://h?ssl_ca_certs={file}"), (BROKER, "pyamqp://h"),
    (BROKER, "amqp://u:p%2Fw@h:5672/a%2Fb?heartbeat=10&login_method=PLAIN"), (BROKER, "amqp://a//;amqp://u:p@b:1/v"),
    (BROKER, "amqps://h//?ssl_certfile={file}&ssl_keyfile={file}&login_method=EXTERNAL"),
    (GRAPH, "neo4j+s://h:65535?policy=eu&region=x"), (GRAPH, "bolt://[::1]:7687/"),
]  # fmt: skip


# All of them by the worker, which has all settings; by each kind of reader, a few of the two settings that it shares.
CASES = [
    pytest.param(variable, url, allowed, start, id=f"{who}-{variable}={url!r}")
    for who, start in STARTS.items()
    for variable in (CACHE, BROKER, GRAPH)
    for _, url, allowed in [row for row in TABLE if row[0] is variable][: None if who == "worker" else 3]
    if variable is not GRAPH or who == "worker"
]


@pytest.mark.parametrize(("variable", "url", "allowed", "start"), CASES)
def test_a_wrong_url_is_an_error_at_the_start(
    monkeypatch: pytest.MonkeyPatch, variable: str, url: str, allowed: str, start: Callable[[], object]
) -> None:
    monkeypatch.setenv(variable, url)
    with pytest.raises(ConfigurationError, match=allowed) as caught:
        start()
    said = str(caught.value)
    assert said.startswith(f"{variable}='")
    assert "is not valid: " in said
    assert caught.value.variable == variable
    assert CANARY not in f"{said}{caught.value!r}"
    assert "\n" not in said


@pytest.mark.parametrize("who", [ReaderSettings, WorkerSettings])
@pytest.mark.parametrize(("variable", "url"), RIGHT)
def test_a_right_url_is_accepted(tmp_path: Path, who: type[Settings], variable: str, url: str) -> None:
    file = tmp_path / "a.pem"
    file.touch()
    given = url.format(file=file, folder=tmp_path)
    if not (variable is GRAPH and who is ReaderSettings):
        assert given in vars_of(who.from_env({variable: given}))


def vars_of(settings: Settings) -> list[object]:
    return [getattr(settings, name) for name in settings.__struct_fields__]


@pytest.mark.parametrize(
    ("uri", "allowed"),
    [("bolt+s://h", r"a file \(PEM\)"), ("bolt://h", r"bolt\+s"), ("neo4j+ssc://h", r"bolt\+s")],
)
def test_certificates_for_the_graph_are_a_file_and_require_a_tls_scheme(uri: str, allowed: str) -> None:
    environ = {GRAPH: uri, "NEO4J_CA_CERTS": "/no/such.pem"}
    with pytest.raises(ConfigurationError, match=rf"^NEO4J_CA_CERTS='/no/such\.pem' is not valid: .*{allowed}"):
        WorkerSettings.from_env(environ)
