"""Settings by a table: name, default, allowed values."""

from __future__ import annotations

import re

import pytest

from api_client import ConfigurationError, ReaderSettings
from api_client.config.environment import Settings, without_password
from refresher.settings import RefreshMode, WorkerSettings

CANARY = "c4nary-s3cret"
READER, WORKER = ReaderSettings, WorkerSettings
BOTH = (READER, WORKER)
MIB = 1024 * 1024

# variable: (the settings that read it, its default, wrong values)
TABLE: dict[str, tuple[tuple[type[Settings], ...], object, tuple[str, ...]]] = {
    "REFRESHER_QUERIES": ((WORKER,), "", ()),
    "CACHE_REDIS_URL": (BOTH, "redis://127.0.0.1:6379/0", ("http://h", "localhost:6379", " ", "redis:/h")),
    "CACHE_NAMESPACE": (BOTH, "cache", ("a b", "a:b", "{a}", "x" * 65, "ä", "a\nb", " ")),
    "CACHE_BROKER_URL": (BOTH, "redis://127.0.0.1:6379/1", ("memory://", "kafka://h", "sentinel://h", "x")),
    "NEO4J_URI": (
        (WORKER,),
        "bolt://127.0.0.1:7687",
        ("http://h", "bolt:h", "neo4j+x://h", "neo4j", "bolt://h?a=b", "bolt://", "bolt://h:x", "bolt://h#f"),
    ),
    "NEO4J_USER": ((WORKER,), "neo4j", ()),
    "NEO4J_PASSWORD": ((WORKER,), "", ()),
    "NEO4J_DATABASE": ((WORKER,), "", ()),
    "NEO4J_CA_CERTS": ((WORKER,), "", ("/etc/ssl/ours.pem",)),  # with +s in NEO4J_URI alone
    "CACHE_XFETCH_ENABLED": ((WORKER,), True, ("maybe", "2", "truee")),
    "CACHE_XFETCH_BETA": ((WORKER,), 1.0, ("0", "-1", "nan", "inf", "x", "1001", "1,5")),
    "CACHE_XFETCH_MIN_TTL": ((WORKER,), 60.0, ("-1", "nan", "soon", "inf")),
    "CACHE_XFETCH_WORKERS": ((WORKER,), 4, ("0", "-1", "1.5", "many", "10001", "1" * 400)),
    "CACHE_XFETCH_QUEUE_SIZE": ((READER,), 100, ("-1", "x", "1.5")),
    "CACHE_XFETCH_TIMEOUT": ((WORKER,), 30.0, ("0", "0.05", "2h", "-1", "nan", "x")),
    "CACHE_XFETCH_RETRY_ENABLED": ((WORKER,), True, ("2", "never")),
    "CACHE_XFETCH_RETRY_MAX": ((WORKER,), 3, ("-1", "101", "x", "2.5")),
    "CACHE_XFETCH_RETRY_BACKOFF": ((WORKER,), 2.0, ("0.9", "101", "nan", "x")),
    "CACHE_XFETCH_RND_PRECISION": ((WORKER,), 0, ("-1", "16", "x", "1.5")),
    "TSPR_REFRESH_MODE": ((WORKER,), RefreshMode.PLAIN, ("topology", "PLAIN", "x")),
    "CACHE_REFRESH_RATE": ((WORKER,), 0.0, ("-1", "0.0009", "10001", "nan", "inf", "x", "10/s")),
    "CACHE_REFRESH_CONCURRENCY": ((WORKER,), 0, ("-1", "1.5", "10001", "x")),
    "CACHE_COMPRESS_MIN_BYTES": ((WORKER,), 16384, ("-1", "x", "1.5", "16KiB", "536870913")),
    "STAMPEDE_LOCK_TIMEOUT_MS": ((WORKER,), 5000.0, ("0", "-1", "nan", "5x", "2h", "3600001")),
    "STAMPEDE_JITTER_MIN_MS": (BOTH, 0.0, ("-1", "nan", "x")),
    "STAMPEDE_JITTER_MAX_MS": (BOTH, 50.0, ("-1", "nan", "x", "3600001")),
    "STAMPEDE_WAIT_POLL_MS": ((READER,), 10.0, ("0", "-1", "nan", "x")),
    "STAMPEDE_WAIT_TIMEOUT_MS": ((READER,), 5000.0, ("0", "-1", "nan", "x")),
    "CACHE_QUEUE_TTL": (BOTH, 60.0, ("0", "-1", "nan", "x", "6000w")),
    "CACHE_COOLING": (BOTH, 30.0, ("0", "0.9", "500ms", "-1", "nan", "x", "6000w")),
    "CACHE_COOLING_MAX": ((WORKER,), 3600.0, ("0", "-1", "nan", "x", "6000w")),
    "CACHE_RECORD_RETENTION": (BOTH, 60.0, ("0", "-1", "nan", "x", "6000w")),
    "CACHE_LOCAL_MAX_ENTRIES": ((READER,), 0, ("-1", "x", "1.5")),
    "CACHE_LOCAL_MAX_BYTES": ((READER,), 64 * MIB, ("0", "-1", "x", "64MiB")),
    "CACHE_LOCAL_MAX_AGE": ((READER,), 1.0, ("0", "-1", "nan", "x", "6000w")),
    "CACHE_METRICS_PORT": ((WORKER,), 0, ("-1", "65536", "http", "1.5")),
    "CACHE_METRICS_ADDRESS": ((WORKER,), "127.0.0.1", ()),
    "CACHE_TTL_JITTER": ((WORKER,), 0.0, ("-1", "51%", "0.6", "x", "10 s")),
    "CACHE_FEED": ((WORKER,), False, ("maybe", "2", "-1")),
    "CACHE_SHOW_FAILURES": ((WORKER,), False, ("maybe", "2", "-1")),
    "CACHE_HEALTH_PORT": ((WORKER,), 0, ("-1", "65536", "http", "1.5")),
    "CACHE_HEALTH_ADDRESS": ((WORKER,), "127.0.0.1", ()),
    "CACHE_METRICS": ((READER,), False, ("maybe", "2", "truee")),
    "CACHE_OTEL": (BOTH, False, ("maybe", "2", "truee")),
    "CACHE_REDIS_TIMEOUT": ((READER,), 0.25, ("0", "-1", "nan", "x", "6000w")),
    "CACHE_REDIS_REPLY_TIMEOUT": ((READER,), 5.0, ("0", "-1", "nan", "x", "6000w")),
    "CACHE_MAX_VALUE_BYTES": (BOTH, 8 * MIB, ("0", "-1", "x", "536870913", "8MiB")),
}
# Values that are accepted as they stand.
GOOD = {
    "CACHE_REDIS_URL": ("rediss://u:p@h:1/2", "unix:///run/redis.sock"), "CACHE_BROKER_URL": ("amqps://h//", "pyamqp://h"),
    "NEO4J_URI": ("neo4j+s://h", "bolt+ssc://h", "neo4j://h:1", "bolt://[::1]:7687", "neo4j://h?policy=eu"),
    "CACHE_XFETCH_ENABLED": ("false", " On ", "0"),
    "CACHE_XFETCH_MIN_TTL": ("0", "1m30s"), "CACHE_XFETCH_TIMEOUT": ("0.1", "1h"),
    "TSPR_REFRESH_MODE": ("topology_sensitive",),
    "CACHE_REFRESH_RATE": ("0", "0.001", "12.5", "10000"),
    "CACHE_REFRESH_CONCURRENCY": ("0", "1", "10000"),
    "CACHE_COMPRESS_MIN_BYTES": ("0", "1"),
    "CACHE_COOLING": ("1", "1000ms"), "STAMPEDE_LOCK_TIMEOUT_MS": ("5s", "250ms"),
    "CACHE_XFETCH_RETRY_MAX": ("0",), "CACHE_XFETCH_QUEUE_SIZE": ("0",),
}  # fmt: skip

READERS = [(name, who) for name, (readers, _, _) in TABLE.items() for who in readers]
WRONG = [(name, who, value) for name, who in READERS for value in TABLE[name][2]]


def fields_of(who: type[Settings]) -> dict[str, str]:
    made = who.from_env({})
    return {made.variable_of(field): field for field in who.__struct_fields__}


@pytest.mark.parametrize("who", BOTH)
def test_the_variables_are_those_of_the_table(who: type[Settings]) -> None:
    assert set(fields_of(who)) == {name for name, reader in READERS if reader is who}


@pytest.mark.parametrize(("name", "who"), READERS)
def test_an_unset_or_empty_variable_has_the_table_s_default(name: str, who: type[Settings]) -> None:
    default = TABLE[name][1]
    for environ in ({}, {name: ""}):
        value = getattr(who.from_env(environ), fields_of(who)[name])
        assert (type(value), value) == (type(default), default)


@pytest.mark.promise("Contract and operation", "A wrong setting is one error that names its variable")
@pytest.mark.parametrize(("name", "who", "value"), WRONG)
def test_the_error_of_a_wrong_setting_names_variable_value_and_allowed_values(
    name: str, who: type[Settings], value: str
) -> None:
    with pytest.raises(ConfigurationError) as caught:
        who.from_env({name: value})
    message = str(caught.value)
    assert caught.value.variable == name
    assert re.match(rf"{name}=.* is not valid: expected \S", message, re.DOTALL)
    assert repr(value).strip("'")[:60] in message or without_password(value) in message
    assert len(message) < 400


@pytest.mark.parametrize(("name", "value"), [(name, value) for name, values in GOOD.items() for value in values])
def test_an_allowed_value_is_accepted(name: str, value: str) -> None:
    for who in TABLE[name][0]:
        who.from_env({name: value})


@pytest.mark.parametrize(
    ("who", "field", "wrong"),
    [
        (WORKER, "beta", 0.0),
        (READER, "queue_size", "x"),
        (READER, "namespace", "a\n"),
        (READER, "redis_timeout_seconds", 1e10),
    ],
)
def test_settings_passed_as_arguments_are_checked_too(who: type[Settings], field: str, wrong: object) -> None:
    with pytest.raises(ConfigurationError):
        who(**{field: wrong})


def test_a_maximum_jitter_below_the_minimum_is_refused() -> None:
    environ = {"STAMPEDE_JITTER_MIN_MS": "60"}
    with pytest.raises(ConfigurationError, match=r"STAMPEDE_JITTER_MAX_MS=50\.0 is not valid: expected 60\.0 or more"):
        ReaderSettings.from_env(environ)


def test_the_process_s_own_environment_is_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CACHE_NAMESPACE", "from-the-environment")
    assert ReaderSettings.from_env().namespace == "from-the-environment"
    assert ReaderSettings.from_env({}).namespace == "cache"


URLS_WITH_A_SECRET = [
    f"redis://:{CANARY}@h:6379/0",
    f"redis://user:{CANARY}@h",
    f"amqp://user:{CANARY}@h//",
    f"redis://h/0?password={CANARY}",
    f"redis://u@h/0?password={CANARY}",
    f"rediss://h/0?ssl_password={CANARY}",
    f"sentinel://:{CANARY}@a:1;sentinel://:{CANARY}@b:2",
    f"redis://:{CANARY}/with@slash@h",
    f"redis://:#{CANARY}@h",
    f"redis://:?{CANARY}@h",
    f"redis:/:{CANARY}@h",
    f":{CANARY}@h",
    f"bolt://neo4j:{CANARY}@h",
    f"neo4j://h/?x=neo4j:{CANARY}@h",
    f"http://u:{CANARY}@[::1",
    f"redis://:p@{CANARY}@h",
]


@pytest.mark.parametrize("who", BOTH)
def test_the_broker_url_comes_from_our_variable_or_else_from_celery_s(who: type[READER | WORKER]) -> None:
    ours, celerys = {"CACHE_BROKER_URL": "redis://ours:1/0"}, {"CELERY_BROKER_URL": "redis://celerys:1/0"}
    assert who.from_env(ours | celerys).broker_url == "redis://ours:1/0"
    assert who.from_env(celerys).broker_url == "redis://celerys:1/0"
    assert who.from_env(celerys | {"CACHE_BROKER_URL": ""}).broker_url == "redis://celerys:1/0"


@pytest.mark.parametrize("who", BOTH)
@pytest.mark.parametrize("url", ["memory://", "rediss://h?ssl_what=1", "rediss://[h"])
def test_the_error_of_a_wrong_broker_url_names_the_variable_it_came_from(who: type[Settings], url: str) -> None:
    for environ, name in (
        ({"CELERY_BROKER_URL": url}, "CELERY_BROKER_URL"),
        ({"CACHE_BROKER_URL": url}, "CACHE_BROKER_URL"),
        ({"CACHE_BROKER_URL": url, "CELERY_BROKER_URL": "redis://h"}, "CACHE_BROKER_URL"),
    ):
        with pytest.raises(ConfigurationError, match=f"^{name}=") as caught:
            who.from_env(environ)
        assert caught.value.variable == name


@pytest.mark.parametrize("who", BOTH)
def test_the_broker_setting_reports_which_variable_it_came_from(
    who: type[READER | WORKER], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CACHE_BROKER_URL", raising=False)
    monkeypatch.setenv("CELERY_BROKER_URL", "redis://celerys:1/0")
    assert who.from_env().variable_of("broker_url") == "CELERY_BROKER_URL"
    assert who(broker_url="redis://explicit:1/0").variable_of("broker_url") == "CACHE_BROKER_URL"
    monkeypatch.setenv("CACHE_BROKER_URL", "redis://ours:1/0")
    assert who.from_env().variable_of("broker_url") == "CACHE_BROKER_URL"


@pytest.mark.parametrize("url", URLS_WITH_A_SECRET)
def test_no_password_of_a_url_is_ever_shown(url: str) -> None:
    assert CANARY not in without_password(url)
    for who in BOTH:
        for name in ("CACHE_REDIS_URL", "CACHE_BROKER_URL", "NEO4J_URI"):
            if name not in fields_of(who):
                continue
            try:
                shown = repr(who.from_env({name: url}))
            except ConfigurationError as error:
                shown = f"{error} {error!r}"
            assert CANARY not in shown


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("redis://h:6379/0", "redis://h:6379/0"),
        ("redis://:pw@h:6379/0", "redis://:***@h:6379/0"),
        ("redis://me:pw@h:6379/0?db=1", "redis://me:***@h:6379/0?db=1"),
        # A user alone may be a password that lacks its colon, an invalid port one that lacks its @.
        ("redis://me@h", "redis://***@h"),
        ("redis://me:pw/0", "redis://me:***"),
        ("redis://h:99999/0", "redis://h:***"),
        ("redis+sentinel://u:pw@a:1,[::1]:2/m/0?token=t&db=1", "redis+sentinel://u:***@a:1,[::1]:2/m/0?token=***&db=1"),
        ("unix:///run/redis.sock?db=3&password=pw", "unix:///run/redis.sock?db=3&password=***"),
        ("localhost:6379", "localhost:6379"),
        ("me:pw", "***"),
    ],
)
def test_the_rest_of_a_url_is_shown(url: str, shown: str) -> None:
    assert without_password(url) == shown


def test_the_graph_s_password_is_shown_nowhere() -> None:
    settings = WorkerSettings.from_env({"NEO4J_PASSWORD": CANARY})
    assert settings.neo4j_password == CANARY
    assert CANARY not in repr(settings)
    with pytest.raises(ConfigurationError) as caught:
        WorkerSettings.from_env({"NEO4J_PASSWORD": CANARY, "CACHE_XFETCH_BETA": "0"})
    assert CANARY not in str(caught.value)


@pytest.mark.parametrize("uri", [f"bolt://neo4j:{CANARY}@h", f"neo4j+s://{CANARY}@h:7687", f"neo4j://h?x=u:{CANARY}@h"])
def test_a_password_in_the_graph_s_uri_is_refused_and_the_error_says_where_it_goes(uri: str) -> None:
    with pytest.raises(ConfigurationError, match="go into NEO4J_USER and NEO4J_PASSWORD") as caught:
        WorkerSettings.from_env({"NEO4J_URI": uri})
    assert f":{CANARY}" not in str(caught.value)


@pytest.mark.parametrize("budget", [0.1, 30.0, 3600.0])
def test_time_limits_nest_for_every_budget(budget: float) -> None:
    limits = WorkerSettings(budget_seconds=budget)
    assert limits.transaction_timeout_seconds < budget < limits.soft_limit_seconds < limits.hard_limit_seconds
    assert limits.hard_limit_seconds < limits.lease_limit_seconds < limits.visibility_timeout_seconds
    assert limits.hard_limit_seconds + 15 < limits.visibility_timeout_seconds


def test_query_modules_are_separated_by_commas() -> None:
    assert WorkerSettings(queries=" a.b , c,, ").query_modules == ("a.b", "c")


def test_a_local_cache_over_a_cluster_is_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"CACHE_LOCAL_MAX_ENTRIES=10 .*cluster"):
        ReaderSettings(redis_url="redis+cluster://h:7000", local_max_entries=10)


def test_milliseconds_may_have_a_unit() -> None:
    said = {"5s": 5000.0, "5000": 5000.0, " 2.5ms ": 2.5, "1m": 60_000.0}
    assert {text: WorkerSettings.from_env({"STAMPEDE_LOCK_TIMEOUT_MS": text}).lease_floor_ms for text in said} == said


@pytest.mark.parametrize(
    ("name", "text", "meant"),
    [
        ("CACHE_REDIS_TIMEOUT", "250", "250ms"),
        ("CACHE_REDIS_REPLY_TIMEOUT", "5000", "5000ms"),
        ("CACHE_LOCAL_MAX_AGE", "61", "61ms"),
        ("CACHE_COOLING", "86401", "86401ms"),
        ("CACHE_QUEUE_TTL", "1000000", "1000000ms"),
    ],
)
def test_a_number_of_seconds_that_a_person_can_t_mean_asks_for_its_unit(name: str, text: str, meant: str) -> None:
    with pytest.raises(ConfigurationError, match=f"^{name}='{text}' .*without a unit is seconds: did you mean {meant}"):
        ReaderSettings.from_env({name: text})
    assert ReaderSettings.from_env({name: f"{text}s"}), "with its unit it may be that long"
    assert ReaderSettings.from_env({name: "60"})
