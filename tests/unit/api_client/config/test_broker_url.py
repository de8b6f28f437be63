"""A broker's URL in Celery's words: behind Sentinels, and on a Unix socket."""

from __future__ import annotations

import ssl
from typing import Any

import pytest
from kombu import Connection
from kombu.transport import TRANSPORT_ALIASES

from api_client import ConfigurationError
from api_client.config.broker_url import connection_settings, is_rabbitmq, sentinel_options, system_of
from api_client.config.settings import ReaderSettings
from api_client.trigger.sentinel_transport import SentinelTransport

SENTINELS = "redis+sentinel://us%3Ber:pass%40word@one,[::1]:1/my%20master/2?sentinel_username=a&sentinel_password=b%26"


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


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("redis+sentinel://one,two", "the name that the Sentinels have for the master"),
        ("redis+sentinel://one,two/m/x", "a number of a database after the master's name"),
        ("redis+sentinel://one:99999/m", "port 1 to 65535"),
        ("redis+sentinel://one/m?client_name=x", "no option but sentinel_username, sentinel_password"),
        ("redis+sentinel://one/m?ssl_ca_certs=x", "no option but sentinel_username, sentinel_password"),
        ("rediss+sentinel://one/m?ssl_ca_certs=/no", "a file (PEM) that is there for ssl_ca_certs"),
        ("redis+cluster://one:7000", "redis://…, redis+sentinel://…, the same with rediss, unix://…"),
        ("sentinel://one:26379", "redis://…, redis+sentinel://…"),
        ("unix://host/x", "unix:///path/of/the/socket"),
        ("unix:///x?db=one", "the number of a database for db"),
        ("unix:///x?virtual_host=1", "no option but db"),
    ],
)
def test_a_wrong_url_is_one_error_that_says_what_is_allowed(url: str, words: str) -> None:
    with pytest.raises(ConfigurationError) as raised:
        ReaderSettings.from_env({"CACHE_BROKER_URL": url})
    assert "CACHE_BROKER_URL" in str(raised.value)
    assert words in str(raised.value)


@pytest.mark.parametrize("secret", ["hunter2"])
def test_no_error_shows_a_secret(secret: str) -> None:
    for url in (f"redis+sentinel://:{secret}@one,two", f"redis+sentinel://one/m/x?sentinel_password={secret}"):
        with pytest.raises(ConfigurationError) as raised:
            ReaderSettings.from_env({"CELERY_BROKER_URL": url})
        text: Any = str(raised.value)
        assert secret not in text
        assert "CELERY_BROKER_URL" in text
