"""The forms of CACHE_REDIS_URL and CACHE_BROKER_URL, the latter in Celery's words. Wrong ones: test_wrong_urls.py."""

from __future__ import annotations

import ssl

import pytest
from kombu import Connection
from kombu.transport import TRANSPORT_ALIASES

from api_client import ReaderSettings
from api_client.config.broker_url import connection_settings, is_rabbitmq, sentinel_options, system_of
from api_client.config.redis_url import Topology, read_url
from api_client.transport.connection_maker import async_connection_maker, connection_maker
from api_client.trigger.sentinel_transport import SentinelTransport
from tests.support.internals import sentinels_of

CANARY = "c4nary-s3cret"
SENTINELS = "redis+sentinel://us%3Ber:pass%40word@one,[::1]:1/my%20master/2?sentinel_username=a&sentinel_password=b%26"


@pytest.mark.parametrize("url", ["redis://h", "rediss://u:p@h:1/2", "unix:///run/redis.sock?db=3"])
def test_the_url_of_a_single_redis_is_passed_to_redis_py_unchanged(url: str) -> None:
    parsed = read_url(url)
    assert (parsed.topology, parsed.node_url, parsed.members) == (Topology.SINGLE, url, ())


@pytest.mark.parametrize(
    ("url", "members", "master", "node_url", "sentinel_options"),
    [
        ("redis+sentinel://h/m", (("h", 26379),), "m", "redis://h:26379/", {}),
        ("redis+sentinel://h:1,i:2/m/3", (("h", 1), ("i", 2)), "m", "redis://h:1/3", {}),
        ("redis+sentinel://u:p@h:1,i/m/0", (("h", 1), ("i", 26379)), "m", "redis://u:p@h:1/0", {}),
        ("rediss+sentinel://:p%40@h:1/my%20m/", (("h", 1),), "my m", "rediss://:p%40@h:1/", {}),
        (
            "redis+sentinel://[::1]:1,[fe80::2]/m?sentinel_password=a%26b&db=4&sentinel_username=u",
            (("::1", 1), ("fe80::2", 26379)), "m", "redis://[::1]:1/?db=4", {"password": "a&b", "username": "u"},
        ),
    ],
)  # fmt: skip
def test_a_sentinel_url_is_parsed(
    url: str, members: object, master: str, node_url: str, sentinel_options: dict[str, str]
) -> None:
    parsed = read_url(url)
    assert (parsed.topology, parsed.members, parsed.master_name) == (Topology.SENTINEL, members, master)
    assert (parsed.node_url, parsed.sentinel_options) == (node_url, sentinel_options)


@pytest.mark.parametrize(
    ("url", "members", "node_url"),
    [
        ("redis+cluster://h:7000,i:7001", (("h", 7000), ("i", 7001)), "redis://h:7000/"),
        ("rediss+cluster://u:p@h/0?ssl_ca_certs=%2Fca", (("h", 6379),), "rediss://u:p@h:6379/0?ssl_ca_certs=%2Fca"),
    ],
)
def test_a_cluster_url_is_parsed(url: str, members: object, node_url: str) -> None:
    parsed = read_url(url)
    assert (parsed.topology, parsed.members, parsed.node_url) == (Topology.CLUSTER, members, node_url)


def test_no_password_of_a_sentinel_url_is_shown_in_a_repr() -> None:
    url = f"redis+sentinel://u:{CANARY}@h:1,i:2/m?sentinel_password={CANARY}"
    settings = ReaderSettings(redis_url=url)
    assert CANARY not in repr(settings) + repr(read_url(url))


def test_with_rediss_the_sentinels_are_queried_over_tls_with_the_same_certificates() -> None:
    url = "rediss+sentinel://:data@h:1/m?ssl_ca_certs=%2Fca.pem&sentinel_password=other"
    for maker in (connection_maker(url, timeout_seconds=3.0), async_connection_maker(url, timeout_seconds=3.0)):
        made = maker()
        assert made.__class__.__name__ == "SentinelManagedSSLConnection"
        assert made.password == "data"
    options = sentinels_of(connection_maker(url, timeout_seconds=3.0).resolver).sentinel_kwargs  # type: ignore[arg-type]
    assert {name: options[name] for name in ("ssl", "ssl_ca_certs", "password", "socket_timeout")} == {
        "ssl": True, "ssl_ca_certs": "/ca.pem", "password": "other", "socket_timeout": 3.0,
    }  # fmt: skip


def test_behind_sentinels_kombu_gets_one_url_and_the_rest_as_options() -> None:
    assert connection_settings(SENTINELS) == {"broker_url": "redis-sentinel://us%3Ber:pass%40word@one:26379/2"}
    assert sentinel_options(SENTINELS) == {
        "master_name": "my master",
        "sentinels": [["one", 26379], ["::1", 1]],
        "sentinel_kwargs": {"username": "a", "password": "b&"},
    }
    assert (is_rabbitmq(SENTINELS), system_of(SENTINELS)) == (False, "redis")


def test_the_transport_has_a_name_of_its_own_and_leaves_kombu_s_where_it_is() -> None:
    stock = TRANSPORT_ALIASES["sentinel"]
    connection = Connection(connection_settings(SENTINELS)["broker_url"], transport_options=sentinel_options(SENTINELS))
    assert isinstance(connection.transport, SentinelTransport)
    assert connection.as_uri() == "redis-sentinel://us%3Ber:**@one:26379/2"
    assert (connection.userid, connection.password) == ("us;er", "pass@word")
    assert TRANSPORT_ALIASES["sentinel"] == stock == "kombu.transport.redis:SentinelTransport"


def test_sentinels_and_servers_are_verified_with_tls() -> None:
    settings = connection_settings("rediss+sentinel://:pw@one/m?ssl_check_hostname=false&sentinel_password=b")
    assert settings == {
        "broker_url": "redis-sentinel://:pw@one:26379/",
        "broker_use_ssl": {"ssl_cert_reqs": ssl.CERT_REQUIRED, "ssl_check_hostname": False},
    }


@pytest.mark.parametrize(
    ("url", "of_kombu"),
    [
        ("unix:///run/redis.sock", "redis+socket:///run/redis.sock?virtual_host=0"),
        ("unix://me:pw@/run/redis.sock?db=3", "redis+socket://me:pw@/run/redis.sock?virtual_host=3"),
    ],
)
def test_a_unix_socket_is_kombu_s_own(url: str, of_kombu: str) -> None:
    assert ReaderSettings(broker_url=url).broker_url == url
    assert connection_settings(url) == {"broker_url": of_kombu}
    assert sentinel_options(url) == {}


def test_a_semicolon_of_a_password_is_not_the_end_of_the_url() -> None:
    connection = Connection(connection_settings("redis://:one;two@host:1/0")["broker_url"])
    assert (connection.hostname, connection.password) == ("host", "one;two")
