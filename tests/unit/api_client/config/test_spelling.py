"""Keywords and options that there are not: each is one error with the name that was meant."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import api_client
import refresher
from api_client import AsyncCacheClient, CacheClient, ConfigurationError, InvalidQuery, ReaderSettings
from api_client.config.spelling import nearest
from api_client.read.requirements import ReadOptions, parse_freshness
from refresher import WorkerSettings
from refresher.testing import InlineCache

SECRET = "c4nary"


@pytest.mark.parametrize(
    ("call", "keywords", "said"),
    [
        (ReaderSettings, {"redis_ur": f"redis://:{SECRET}@h"}, "has no such keyword; did you mean redis_url?"),
        (ReaderSettings, {"beta": 2}, "ReaderSettings has no such keyword; expected redis_url, broker_url"),
        (WorkerSettings, {"neo4j_pasword": SECRET}, "WorkerSettings has no such keyword; did you mean neo4j_password?"),
        (CacheClient, {"event": None}, "CacheClient has no such keyword; did you mean events?"),
        (CacheClient, {"redis_url": SECRET}, "did you mean settings=ReaderSettings(redis_url=…)?"),
        (AsyncCacheClient, {"redis_urll": SECRET}, "did you mean settings=ReaderSettings(redis_url=…)?"),
        (CacheClient.from_env, {"event": None}, " from_env has no such keyword; did you mean events?"),
        (api_client.configure, {"setings": None}, "configure has no such keyword; did you mean settings?"),
        (refresher.make_app, {"neo4j_uri": SECRET}, "did you mean settings=WorkerSettings(neo4j_uri=…)?"),
        (refresher.install, {"event": None}, "install has no such keyword; did you mean events?"),
        (refresher.query, {"gracee": "1h"}, "query has no such keyword; did you mean grace?"),
        (InlineCache, {"setting": None}, "InlineCache has no such keyword; did you mean settings?"),
    ],
)  # fmt: skip
def test_a_wrong_keyword_is_one_error_with_the_nearest_name(
    call: Callable[..., object], keywords: dict[str, Any], said: str
) -> None:
    (wrong,) = keywords
    with pytest.raises(ConfigurationError) as raised:
        call(**keywords)
    assert str(raised.value).startswith(f"{wrong}=… is not valid: ")
    assert said in str(raised.value)
    assert SECRET not in str(raised.value)
    assert raised.value.variable == wrong


def test_a_call_without_wrong_keywords_is_the_functions_own() -> None:
    assert ReaderSettings(namespace="n").namespace == "n"
    with pytest.raises(TypeError, match="missing 1 required"):
        refresher.install()  # type: ignore[call-arg]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"maxage": 1}, "no option 'maxage'; did you mean max_age?"),
        ({"defualt": 1}, "no option 'defualt'; did you mean default?"),
        ({"person_id": 1}, "no option 'person_id'; expected max_age, fresh, "),
    ],
)
def test_a_wrong_option_of_a_read_is_named_with_the_nearest(options: ReadOptions, said: str) -> None:
    with pytest.raises(InvalidQuery) as raised:
        parse_freshness("friends_of", options)
    assert said in str(raised.value)
    assert "Params are one mapping" in str(raised.value)


def test_nearness_has_a_bound() -> None:
    known = {"CACHE_REDIS_TIMEOUT", "CACHE_REDIS_URL"}
    assert nearest("CACHE_REDIS_TIMOUT", known, at_least=0.9) == "CACHE_REDIS_TIMEOUT"
    assert nearest("CACHE_DIRECTORY", known, at_least=0.9) is None
