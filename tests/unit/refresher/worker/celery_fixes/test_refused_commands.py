"""A refused command in the log: its name and key, and nothing else of it."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from amqp.exceptions import AccessRefused  # type: ignore[import-untyped]  # it has no types
from redis.exceptions import NoPermissionError, ResponseError

from refresher.worker.celery_fixes.refused_commands import describe_refused_command

CANARY = "c4nary-s3cret"
NO_RIGHT = NoPermissionError("this user has no permissions to run the 'x' command")


def raised_by(send: Callable[[], object]) -> BaseException:
    try:
        send()
    except (ResponseError, AccessRefused) as error:
        return error
    raise AssertionError("nothing was refused")


def execute_command(*args: object) -> None:
    """Stand in for redis-py's function of this name and argument."""
    assert args
    raise NO_RIGHT


@pytest.mark.parametrize(
    ("command", "shown"),
    [
        (("llen", "cache.refresh"), "LLEN 'cache.refresh'"),
        (("LPUSH", b"cache.refresh", CANARY), "LPUSH 'cache.refresh'"),
        (("EVALSHA", "5a" * 20, 1, "unacked_mutex", CANARY), "EVALSHA 'unacked_mutex'"),
        (("SET", "a\nforged line", CANARY), r"SET 'a\nforged line'"),
        (("AUTH", "worker", CANARY), "AUTH"),
        (("HELLO", 3, "AUTH", "worker", CANARY), "HELLO"),
        (("PING",), "PING"),
    ],
)
def test_a_refused_command_is_shown_by_its_name_and_key(command: tuple[object, ...], shown: str) -> None:
    said = describe_refused_command(raised_by(lambda: execute_command(*command)))
    assert said == f"{shown}: NoPermissionError: {NO_RIGHT}"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (f"Command # 2 (ZADD unacked_index {CANARY}) of pipeline caused error: NOPERM", "ZADD 'unacked_index': "),
        ("Command # 1 (MULTI) of pipeline caused error: NOPERM", "MULTI: "),
        (f"unknown command 'LPUSH', with args beginning with: 'cache.refresh' '{CANARY}'", ""),
    ],
)
def test_arguments_quoted_in_the_text_of_a_refusal_are_left_out(text: str, shown: str) -> None:
    said = describe_refused_command(ResponseError(text))
    assert said.startswith(f"{shown}ResponseError: ")
    assert CANARY not in said


def test_rabbitmq_names_the_method_and_the_queue_itself() -> None:
    said = describe_refused_command(AccessRefused("ACCESS_REFUSED - access to queue 'cache.refresh' refused", (50, 10)))
    assert "Queue.declare" in said
    assert "cache.refresh" in said
