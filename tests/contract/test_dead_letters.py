"""The dead-letter store: bounded, newest first, one per key while its record remembers the previous one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
import redis

from api_client.protocol.keys import dead_letters_key
from refresher.embedded import RedisServer
from refresher.flow.dead_letters import DeadLetter, DeadLetters

KEY = dead_letters_key("cache")


def a_letter(token: int, digest: str = "a", **changes: Any) -> DeadLetter:
    fields: dict[str, Any] = {
        "query": "q", "version": 1, "params": {"n": 1}, "digest": digest * 32, "token": token, "kind": "syntax",
        "message": "no Cypher", "attempts": 1, "at_us": token, "failures": 1,
    }  # fmt: skip
    return DeadLetter(**(fields | changes))


@pytest.fixture
def client(clean_redis: RedisServer) -> Iterator[redis.Redis]:
    with redis.Redis.from_url(clean_redis.url(0)) as opened:
        yield opened


@pytest.fixture
def letters(client: redis.Redis) -> DeadLetters:
    return DeadLetters(client, "cache", max_kept=3)


def test_dead_letters_are_listed_newest_first_and_the_oldest_dropped(letters: DeadLetters) -> None:
    for token in (3, 1, 4, 2, 5):
        letters.add(a_letter(token))
    assert [letter.token for letter in letters.newest()] == [5, 4, 3]
    assert letters.newest()[0] == a_letter(5)


def test_adding_a_dead_letter_again_changes_nothing(letters: DeadLetters) -> None:
    letters.add(a_letter(1))
    letters.add(a_letter(1))
    assert len(letters.newest()) == 1


def test_a_dead_letter_replaces_only_the_previous_one_of_its_key(letters: DeadLetters) -> None:
    letters.add(a_letter(1, "a"))
    letters.add(a_letter(1, "b"))  # two keys may have drawn the same number
    letters.add(a_letter(2, "a"), replaced_token=1)
    assert [(letter.token, letter.digest[0]) for letter in letters.newest()] == [(2, "a"), (1, "b")]


def test_dropping_a_dead_letter_removes_it_once_and_no_other(letters: DeadLetters) -> None:
    letters.add(a_letter(1, "a"))
    letters.add(a_letter(1, "b"))
    assert letters.drop(a_letter(1, "a"))
    assert not letters.drop(a_letter(1, "a"))
    assert [letter.digest[0] for letter in letters.newest()] == ["b"]


def test_a_dead_letter_of_an_earlier_release_can_be_read_and_dropped(client: redis.Redis, letters: DeadLetters) -> None:
    raw = msgspec.json.decode(msgspec.json.encode(a_letter(1)))
    del raw["failures"]
    client.zadd(KEY, {msgspec.json.encode(raw | {"later": "field"}): 1})
    (letter,) = letters.newest()
    assert letter.failures == 0
    assert letters.drop(letter)
    assert client.exists(KEY) == 0


@pytest.mark.parametrize(
    "raw", [b"", b"\xff", b"[]", b'{"query": 1}', msgspec.json.encode(a_letter(1, digest="x")),
            msgspec.json.encode(a_letter(1, query="no name"))],
)  # fmt: skip
def test_an_unrecognised_dead_letter_is_left_out(client: redis.Redis, letters: DeadLetters, raw: bytes) -> None:
    client.zadd(KEY, {raw: 7})
    letters.add(a_letter(8))
    assert letters.newest() == [a_letter(8)]
    letters.add(a_letter(9), replaced_token=7)
    assert len(letters.newest()) == 2
