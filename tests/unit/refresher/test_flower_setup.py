"""Flower's setup: when it may start, and how it shows the outcome of a task."""

from __future__ import annotations

import re
import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import click
import pytest

from refresher import flower as flower_setup
from refresher.flower import DEFAULTS, DaemonExecutor, format_task, insecure_configuration, set_up_flower
from refresher.worker.tasks import RefreshAbandoned, RetryLater
from tests.support.waiting import MAX_WAIT_SECONDS

flower_options = pytest.importorskip("flower.options")

DOCUMENTATION = Path(__file__).parents[3] / "docs" / "how-to" / "flower.md"


def options_with(**changes: Any) -> Any:
    """Return Flower's options: this project's defaults, and changes to them."""
    own = dict(flower_options.options.items())
    return SimpleNamespace(**{**own, **DEFAULTS, **changes})


def test_by_default_flower_listens_on_loopback_and_is_read_only() -> None:
    assert (DEFAULTS["address"], DEFAULTS["read_only"]) == ("127.0.0.1", True)


OAUTH = {"auth_provider": "flower.views.auth.GithubLoginHandler", "auth": "someone@example.org"}
EVERYWHERE = {"address": "0.0.0.0"}  # noqa: S104 - nothing listens


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"address": "::1"},
        {"address": "localhost"},
        {"basic_auth": ["a:b", "c:d:e"]} | EVERYWHERE,
        {"basic_auth": ["a:b"], "address": ""},
        {"basic_auth": ["a:b"], "unix_socket": "flower.sock"},
        OAUTH | EVERYWHERE,
    ],
)
def test_flower_starts_on_loopback_or_with_a_password(options: dict[str, Any]) -> None:
    assert insecure_configuration(options_with(**options), {"FLOWER_UNAUTHENTICATED_API": "false"}) == ""


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (EVERYWHERE, "would listen on 0.0.0.0"),
        ({"address": ""}, "would listen on every interface"),
        ({"address": "192.0.2.1"}, "would listen on 192.0.2.1"),
        ({"unix_socket": "flower.sock"}, "would listen on flower.sock"),
        ({"auth": "someone@example.org"} | EVERYWHERE, "let anyone in"),
        ({"basic_auth": ["a:"]}, "FLOWER_BASIC_AUTH is not valid"),
        ({"basic_auth": ["a:b", "secret"]}, "FLOWER_BASIC_AUTH is not valid"),
        ({"basic_auth": [":b"]} | EVERYWHERE, "FLOWER_BASIC_AUTH is not valid"),
    ],
)
def test_flower_does_not_start_where_anyone_could_get_in(options: dict[str, Any], words: str) -> None:
    problem = insecure_configuration(options_with(**options), {})
    assert words in problem
    assert "secret" not in problem


@pytest.mark.parametrize("value", ["1", "true", "yes", "x"])
def test_flower_does_not_start_with_an_unauthenticated_api(value: str) -> None:
    assert insecure_configuration(options_with(basic_auth=["a:b"]), {"FLOWER_UNAUTHENTICATED_API": value}).endswith(
        "unset it"
    )


def test_flower_s_security_is_checked_after_its_options_have_been_parsed() -> None:
    script = (
        "import sys; from tornado.options import options; from refresher.flower import set_up_once;"
        "set_up_once('redis://h');"
        "options.parse_command_line(['flower', *sys.argv[1:]]); print('it would begin')"
    )
    for arguments, words in (["--address=0.0.0.0"], "error: Flower would listen on 0.0.0.0"), ([], "it would begin"):
        ended = subprocess.run(
            [sys.executable, "-c", script, "--conf=none", *arguments],
            capture_output=True, text=True, timeout=MAX_WAIT_SECONDS, check=False,
        )  # fmt: skip
        assert words in ended.stdout + ended.stderr
        assert (ended.returncode == 0) == (not arguments)


def test_the_list_of_tasks_has_the_columns_that_the_documentation_explains() -> None:
    explained = DOCUMENTATION.read_text(encoding="utf-8").partition("| column | content |")[2].partition("\n\n")[0]
    columns = [name for row in re.findall(r"^\| ([A-Za-z, ]+) \|", explained, re.MULTILINE) for name in row.split(", ")]
    assert DEFAULTS["tasks_columns"] == ",".join(columns).lower()


def a_task(**fields: Any) -> Any:
    return SimpleNamespace(**{"name": None, "args": None, "exception": None, "traceback": "Traceback …"} | fields)


@pytest.mark.parametrize(
    ("args", "result", "shown"),
    [
        ("q.a v2 3f2a early", "committed (early) q.a 3f2a token=1", ("v2 3f2a early", "committed (early) token=1")),
        ("q.a v2 3f2a early", None, ("v2 3f2a early", None)),
        ("q.a v2 ? miss", "skipped (malformed) ?", ("q.a v2 ? miss", "skipped (malformed) ?")),
        ("q.a v1 3f miss, b v1 77 miss", "skipped (x) q.a 3f", ("q.a v1 3f miss, b v1 77 miss", "skipped (x) q.a 3f")),
        ("qxa v1 3f2a miss", "committed (miss) qxa 3f2a", ("qxa v1 3f2a miss", "committed (miss) qxa 3f2a")),
        (None, "committed (miss) q.a 3f2a", (None, "committed (miss) q.a 3f2a")),
        (
            "×9: q.a v1 3f miss, q.a v1 77 early, …", "'q.a ×9: 8 committed, 1 failed (syntax)'",
            ("×9: v1 3f miss, v1 77 early, …", "8 committed, 1 failed (syntax)"),
        ),
        ("×2: q.a v1 3f miss, q.a v1 77 early", None, ("×2: v1 3f miss, v1 77 early", None)),
    ],
)  # fmt: skip
def test_a_task_shows_its_query_and_key_only_once(
    args: str | None, result: str | None, shown: tuple[str | None, str | None]
) -> None:
    task = format_task(a_task(name="refresh q.a", state="SUCCESS", args=args, result=result))
    assert (task.args, task.result) == shown


@pytest.mark.parametrize(
    ("state", "result", "exception", "shown"),
    [
        ("SUCCESS", "'skipped (already_fresh) q 3f'", None, "skipped (already_fresh) q 3f"),
        ("SUCCESS", "'committed (early) q 3f'", repr(RetryLater("retry (network) q 3f")), "committed (early) q 3f"),
        (
            "SUCCESS", "'committed (miss) q 3f token=7 δ=0.110s run=0.115s attempts=2'", None,
            "committed (miss) q 3f δ=0.110s run=0.115s attempts=2 token=7",
        ),
        ("STARTED", None, None, None),
        ("RETRY", None, repr(RetryLater("retry (network) q 3f")), "retry (network) q 3f"),
        ("FAILURE", None, repr(RefreshAbandoned("dead: failed (syntax) q 3f")), "dead: failed (syntax) q 3f"),
        ("FAILURE", None, "GivenUp('dead: failed (syntax) q 3f')", "dead: failed (syntax) q 3f"),  # of release 0.1
        ("FAILURE", None, "WorkerLostError('Worker exited')", "WorkerLostError('Worker exited')"),
    ],
)  # fmt: skip
def test_the_outcome_of_a_task_s_last_attempt_is_shown_as_its_result(
    state: str, result: str | None, exception: str | None, shown: str | None
) -> None:
    task = a_task(state=state, result=result, exception=exception)
    assert format_task(task).result == shown
    assert (task.traceback is None) == ("Later" in (exception or "") or "dead" in (exception or ""))


@pytest.mark.parametrize(("command", "times"), [("flower", 1), ("worker", 0), (None, 0)])
def test_only_the_command_flower_is_set_up(monkeypatch: pytest.MonkeyPatch, command: str | None, times: int) -> None:
    done: list[str] = []
    monkeypatch.setattr(flower_setup, "set_up_once", done.append)
    set_up_flower("redis://h")  # no command line is being run
    with click.Context(click.Group("celery")) as context:
        context.invoked_subcommand = command
        set_up_flower("redis://h")
    assert len(done) == times


def test_flower_s_executor_returns_results_and_raises_errors_like_any_other() -> None:
    with DaemonExecutor() as executor:
        assert executor.submit(divmod, 7, 2).result(MAX_WAIT_SECONDS) == (3, 1)
        with pytest.raises(ZeroDivisionError):
            executor.submit(divmod, 7, 0).result(MAX_WAIT_SECONDS)


def test_a_hanging_call_of_flower_delays_neither_other_calls_nor_its_exit() -> None:
    forever, executor = threading.Event(), DaemonExecutor(max_workers=1)
    hanging = executor.submit(forever.wait)
    assert executor.submit(divmod, 7, 2).result(MAX_WAIT_SECONDS) == (3, 1)
    assert not hanging.done()
    forever.set()
    script = (
        "import threading; from flower.app import Flower; from refresher.flower import set_up_once;"
        "set_up_once('redis://h'); Flower.pool_executor_cls().submit(threading.Event().wait); print('at its end')"
    )
    ended = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=MAX_WAIT_SECONDS, check=True
    )
    assert (ended.stdout, ended.stderr) == ("at its end\n", "")


ENDED_IN_A_FINALIZER = """
import os, signal
from flower import command
from refresher.flower import set_up_once
from tornado.ioloop import IOLoop

class Connection:
    def __del__(self):
        os.kill(os.getpid(), signal.SIGTERM)

set_up_once('redis://h')
signal.signal(signal.SIGTERM, command.sigterm_handler)
loop = IOLoop.current()
loop.add_callback(Connection)
loop.call_later(30, os._exit, 1)
loop.start()
"""


def test_flower_ends_by_a_signal_that_arrives_during_a_finalizer() -> None:
    ended = subprocess.run(
        [sys.executable, "-c", ENDED_IN_A_FINALIZER],
        capture_output=True, text=True, timeout=MAX_WAIT_SECONDS, check=True,
    )  # fmt: skip
    assert (ended.stdout, ended.stderr) == ("", "")
