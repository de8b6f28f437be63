"""``refresher dead`` as a user runs it, with a real worker where a refresh is requested."""

from __future__ import annotations

import re
from collections.abc import Iterator

import msgspec
import pytest
import redis

from api_client import RefreshFailed
from refresher.embedded import RedisServer, free_port
from refresher.flow.dead_letters import DeadLetters
from tests.acceptance.conftest import System
from tests.contract.test_dead_letters import a_letter
from tests.support.command_line import CommandLine
from tests.support.waiting import eventually

AT_ONCE = {"CACHE_XFETCH_RETRY_ENABLED": "false"}
SECRET = "canary-c3a9"


class DeadCommand(CommandLine):
    """The dead letters of a cache, and the command."""

    def __init__(self, cache: redis.Redis, env: dict[str, str]) -> None:
        super().__init__("dead", env)
        self.letters = DeadLetters(cache, "cache")


class BusyDeadCommand(DeadCommand):
    """The command with a whole system behind it."""

    def __init__(self, system: System) -> None:
        super().__init__(system.cache, system.env)
        self.system, self.client = system, system.client()

    def fail(self, key: str, times: int = 1) -> str:
        """Let a key of `long_lived` fail ``times`` times in a row; return the dead letter's id."""
        self.system.control.rpush(f"script:{key}", *["fail"] * times)
        for _ in range(times):
            known = {letter.id for letter in self.letters.newest()}
            self.client.refresh("long_lived", {"key": key})
            # It is written after the key's backoff has begun.
            new = eventually(
                lambda: [letter.id for letter in self.letters.newest() if letter.id not in known],  # noqa: B023
                "its dead letter",
            )
        return new[0]


@pytest.fixture
def busy_cli(system: System) -> BusyDeadCommand:
    return BusyDeadCommand(system)


@pytest.fixture
def cli(clean_redis: RedisServer) -> Iterator[DeadCommand]:
    with redis.Redis.from_url(clean_redis.url(0)) as cache:
        yield DeadCommand(cache, {"CACHE_REDIS_URL": clean_redis.url(0), "CACHE_BROKER_URL": clean_redis.url(1)})


def test_a_failing_key_is_listed_shown_retried_and_gone(busy_cli: BusyDeadCommand) -> None:
    busy_cli.system.start_worker(**AT_ONCE)
    identifier = busy_cli.fail("a", times=2)
    (result,) = busy_cli.run_json("list")
    assert (result["id"], result["query"], result["params"]) == (identifier, "long_lived", {"key": "a"})
    assert (result["kind"], result["attempts"], result["failures"], result["letters"]) == ("transient", 1, 2, 1)
    assert result["state"] == "quarantined"
    assert 0 < result["state_left"] <= 60
    with pytest.raises(RefreshFailed) as caught:
        busy_cli.client.get("long_lived", {"key": "a"})
    assert caught.value.kind == "transient"
    assert 0 < caught.value.retry_after_seconds <= 60

    line = busy_cli.run("list").output
    assert f'{identifier}  long_lived  {{"key": "a"}}  transient' in line
    assert "quarantined for" in line
    shown = busy_cli.run("show", identifier).output
    assert "because   TransientFailure: scripted" in shown
    assert re.search(r"^at        /\S+\.py:\d+ in \w+$", shown, re.MULTILINE)
    assert "last refresh failed (transient); backing off for another" in shown
    assert "failed 2 times in a row" in str(busy_cli.client.explain("long_lived", {"key": "a"}))

    assert busy_cli.run_json("retry", identifier) == [
        {"id": identifier, "query": "long_lived", "result": "refreshed", "why": ""}
    ]
    assert busy_cli.client.get("long_lived", {"key": "a"})["load"] == 3
    assert busy_cli.run_json("list") == []
    assert busy_cli.system.record(busy_cli.client.key("long_lived", {"key": "a"})) == {}


def test_a_retry_that_fails_again_keeps_one_dead_letter_and_the_failure_count(busy_cli: BusyDeadCommand) -> None:
    busy_cli.system.start_worker(**AT_ONCE)
    identifier = busy_cli.fail("a")
    busy_cli.system.control.rpush("script:a", "fail")
    (result,) = busy_cli.run_json("retry", "--all", exit_code=1)
    assert (result["result"], result["why"]) == ("failed again", "transient")
    (letter,) = eventually(
        lambda: [one for one in busy_cli.run_json("list") if one["id"] != identifier and one["letters"] == 1],
        "the newer letter is there in the place of the older",
    )  # fmt: skip
    assert (letter["failures"], letter["state"]) == (2, "quarantined")


def test_without_a_worker_a_retry_is_requested_and_the_dead_letter_stays(busy_cli: BusyDeadCommand) -> None:
    worker = busy_cli.system.start_worker(**AT_ONCE)
    identifier = busy_cli.fail("a")
    worker.kill()
    (result,) = busy_cli.run_json("retry", identifier, "--wait", "0")
    assert (result["result"], result["why"]) == ("requested", "")
    (result,) = busy_cli.run_json("retry", identifier, "--wait", "200ms", exit_code=1)
    assert (result["result"], result["why"]) == ("requested", "one is under way")
    assert busy_cli.run_json("list")[0]["state"] == "queued"
    assert busy_cli.run("list").output.rstrip().endswith("queued")


def test_dead_letters_of_one_key_are_listed_and_dropped_together(cli: DeadCommand) -> None:
    cli.letters.add(a_letter(1, "a"))
    cli.letters.add(a_letter(2, "a"))
    cli.letters.add(a_letter(3, "b", query="other"))
    assert [(one["id"], one["letters"], one["state"]) for one in cli.run_json("list")] == [
        ("3-bbbbbbbb", 1, "idle"), ("2-aaaaaaaa", 2, "idle"),
    ]  # fmt: skip
    assert [one["id"] for one in cli.run_json("list", "--query", "q")] == ["2-aaaaaaaa"]
    assert cli.run_json("drop", "1-aaaaaaaa")[0]["id"] == "2-aaaaaaaa"
    assert [one["id"] for one in cli.run_json("list")] == ["3-bbbbbbbb"]
    assert cli.run_json("drop", "--query", "nobody") == []
    assert cli.run_json("drop", "--query", "other")[0]["ended_pause"] is False
    assert cli.run("list").output == "no dead letters\n"


def test_lists_of_dead_letters_are_bounded_and_escape_control_characters(cli: DeadCommand) -> None:
    for token in range(1, 60):
        letter = a_letter(token, params={"text": "\x1b[31mred" + "x" * 500}, message="a\nb\x1b")
        cli.letters.add(msgspec.structs.replace(letter, digest=f"{token:032x}"))
    done = cli.run("list")
    assert done.output.count("\n") == 52  # a head, 50 letters, and how many more there are
    assert done.output.endswith("and 9 more: --most 59\n")
    assert len(cli.run_json("list")) == 50
    assert len(cli.run_json("list", "--most", "2")) == 2
    for output in (done.output, cli.run("show", "1-00000000").output):
        assert "\x1b" not in output
    assert "because   a\\nb\\x1b" in cli.run("show", "1-00000000").output
    done = cli.run("drop", "--all")
    assert done.output.count("\n") == 52
    assert done.output.endswith("and 9 more: --json prints all\n59 keys\n")


def test_a_dead_letter_without_params_can_be_dropped_and_shows_why_it_is_not_retried(cli: DeadCommand) -> None:
    cli.letters.add(a_letter(1, "a", params=None, message=None))
    assert "(not kept)" in cli.run("list").output
    (result,) = cli.run_json("retry", "--all", exit_code=1)
    assert (result["result"], result["why"]) == ("params not kept", "drop it, and the next reader triggers a refresh")
    assert cli.run_json("show", "1-aaaaaaaa")["params"] is None
    assert cli.run_json("drop", "--all")[0]["result"] == "dropped"


def test_retrying_without_a_broker_reports_the_failed_request_and_loses_no_dead_letter(cli: DeadCommand) -> None:
    cli.letters.add(a_letter(1, "a"))
    done = cli.run("retry", "--all", CACHE_BROKER_URL=f"redis://127.0.0.1:{free_port()}/0")
    assert done.exit_code == 1
    assert "1-aaaaaaaa  q: could not be requested" in done.output
    assert len(cli.letters.newest()) == 1


@pytest.mark.parametrize(
    ("arguments", "exit_code", "words"),
    [
        (["retry"], 2, "give one of: IDs, --query NAME, --all"),
        (["drop", "1-a", "--all"], 2, "give one of: IDs, --query NAME, --all"),
        (["retry", "--all", "--wait", "soon"], 2, "--wait"),
        (["show"], 2, "ID"),
        (["list", "--most", "0"], 2, "--most"),
        (["show", "1-aaaaaaaa"], 1, "error: no dead letter 1-aaaaaaaa"),
        (["drop", "\x1b[1m"], 1, "error: no dead letter \\x1b[1m"),
    ],
)
def test_exit_codes_of_the_dead_command(cli: DeadCommand, arguments: list[str], exit_code: int, words: str) -> None:
    done = cli.run(*arguments)
    assert done.exit_code == exit_code
    assert words in done.output
