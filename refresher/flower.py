"""``celery -A refresher flower``: what Flower begins with here, and when it does not begin.

By itself Flower listens on every interface, lets anyone look, and has buttons that stop workers. Here it listens on the
loopback address and is there to be looked at. What the environment (FLOWER_…), a file (--conf) or the command line say
otherwise counts; but where others than this machine's users could get in, it asks for a password, or ends.
"""

from __future__ import annotations

import functools
import os
import re
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from logging import INFO, getLogger
from pathlib import Path
from typing import Any, Final, ParamSpec, TypeVar

import click

from api_client.trigger.broker import display_name
from refresher.ops.addresses import LOOPBACK

P = ParamSpec("P")
T = TypeVar("T")

DEFAULTS: Final[Mapping[str, object]] = {
    "address": "127.0.0.1",
    # To look at, not to act on: Flower refuses to shut workers down, to revoke and to send tasks.
    "read_only": True,
    # The query, its key and why it was refreshed (args), what came of it (result), and when.
    "tasks_columns": "name,args,state,result,retries,received,runtime,worker,uuid",
    "max_tasks": 10_000,
    "max_workers": 1_000,
    "purge_offline_workers": 3_600,
}
_NO: Final = frozenset({"", "0", "f", "false", "n", "no", "off"})
# Ends that the task tells by an error: Python's quotes around them say nothing, and neither does a traceback.
_TOLD_BY_ERROR: Final = re.compile(r"(?:RetryLater|RefreshAbandoned|GivenUp)\((['\"])(.*)\1\)", re.DOTALL)
_TOKEN: Final = re.compile(r"(token=\d+) ([^;]+)$")


def set_up_flower() -> None:
    """Set Flower up, where that is the command of Celery's that is being run; do nothing otherwise."""
    context = click.get_current_context(silent=True)
    if context is not None and context.find_root().invoked_subcommand == "flower":
        _set_up_once()


@functools.cache
def _set_up_once() -> None:
    import flower.options  # noqa: F401 - it defines what is set here
    from flower.app import Flower
    from tornado.options import options

    Flower.pool_executor_cls = _Unawaited

    for name, value in DEFAULTS.items():
        setattr(options, name, value)
    options.format_task = format_task
    # At the level debug Flower logs its own settings, and the cookie's secret with them.
    getLogger("flower.command").setLevel(INFO)
    options.add_parse_callback(_AccessCheck(options))


class _Unawaited(ThreadPoolExecutor):
    """Runs each call on a thread of its own, for which nobody waits in the end.

    Python ends when the threads of an executor have ended, and those of Flower ask the broker, for as long as it is
    away. Nothing is lost with what they ask. How many ask at a time is bounded by Flower itself.
    """

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Run ``fn``; its result, or what it raises, is the future's."""
        future: Future[T] = Future()

        def run() -> None:
            if future.set_running_or_notify_cancel():
                try:
                    future.set_result(fn(*args, **kwargs))
                except BaseException as error:  # noqa: BLE001 - told to whoever waits for it
                    future.set_exception(error)

        threading.Thread(target=run, name="flower-asks", daemon=True).start()
        return future


class _AccessCheck:
    """Ends Flower where anyone could get in. Called when Flower has read the command line, and again after its file."""

    def __init__(self, said: Any) -> None:
        self._said, self._is_file_read = said, False

    def __call__(self) -> None:
        if not self._is_file_read and Path(self._said.conf).is_file():
            self._is_file_read = True
            return
        problem = insecure_configuration(self._said, os.environ)
        if problem:
            raise SystemExit(f"error: {problem}")
        if not requires_auth(self._said):
            click.echo(
                f"warning: Flower on {self._said.address} asks nobody for a password, and every user of this machine "
                "can read it: set FLOWER_BASIC_AUTH=user:password",
                err=True,
            )


def requires_auth(said: Any) -> bool:
    """Tell whether Flower asks who one is, by a password or by OAuth; ``said`` are its options."""
    return bool(said.basic_auth) or bool(said.auth_provider and said.auth)


def insecure_configuration(said: Any, environ: Mapping[str, str]) -> str:
    """Return how anyone could get in, and what to do about it; "" where nobody can."""
    if environ.get("FLOWER_UNAUTHENTICATED_API", "").lower() not in _NO:
        return "FLOWER_UNAUTHENTICATED_API opens Flower's API to anyone: unset it"
    if not all(user and password for user, _, password in (one.partition(":") for one in said.basic_auth or ())):
        return "FLOWER_BASIC_AUTH is not valid: allowed is user:password, comma-separated, none of them empty"
    if not requires_auth(said) and (said.unix_socket or said.address not in LOOPBACK):
        return (
            f"Flower would listen on {said.unix_socket or said.address or 'every interface'} and let anyone in: set "
            "FLOWER_BASIC_AUTH=user:password (or --auth_provider and --auth for OAuth), or let it listen on 127.0.0.1"
        )
    return ""


def format_task(task: Any) -> Any:
    """Return a task (Flower's own copy) as pages show it.

    What came of its last attempt stands in ``result``, whatever its state, and what matters most of it comes first: the
    list shows no more than fits. Query and key are said once: by ``name`` and ``args``.
    """
    told = _TOLD_BY_ERROR.search(task.exception or "")
    if told is not None:
        task.traceback = None
    if task.state in {"RETRY", "FAILURE"}:
        task.result = told[2] if told is not None else task.exception
    elif task.result:
        task.result = _TOKEN.sub(r"\2 \1", task.result.strip("'\""))
    return _said_once(task)


def _said_once(task: Any) -> Any:
    query = (task.name or "").removeprefix(display_name(""))
    if of_one := re.fullmatch(rf"{re.escape(query)} (v\d+ ([0-9a-f]+) \w+)", task.args or ""):
        task.args = of_one[1]
        task.result = task.result and task.result.replace(f" {query} {of_one[2]}", "", 1)
    return task
