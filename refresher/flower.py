"""``celery -A refresher flower``: secure defaults, and the refusal of insecure configurations.

By default Flower listens on every interface, needs no password, and has buttons that stop workers. Here it listens on
the loopback address and is read-only. The environment (FLOWER_…), a file (--conf) and the command line override that.
But if it would be open without a password to more than this machine's users, it exits.
"""

from __future__ import annotations

import functools
import os
import re
import sys
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from logging import INFO, getLogger
from pathlib import Path
from typing import Any, Final, ParamSpec, TypeVar

import click

from api_client.transport.connection_maker import async_connection_maker
from api_client.trigger.broker import display_name
from refresher.ops.http import LOOPBACK

P = ParamSpec("P")
T = TypeVar("T")

DEFAULTS: Final[Mapping[str, object]] = {
    "address": "127.0.0.1",
    # Then Flower refuses to shut down workers, and to revoke and send tasks.
    "read_only": True,
    # The query, its key and the reason for the refresh (args), its outcome (result), and times.
    "tasks_columns": "name,args,state,result,retries,received,runtime,worker,uuid",
    "max_tasks": 10_000,
    "max_workers": 1_000,
    "purge_offline_workers": 3_600,
}
_NO: Final = frozenset({"", "0", "f", "false", "n", "no", "off"})
# Outcomes that the task reports as errors; releases before 0.2 have GivenUp.
_OUTCOME_ERROR: Final = re.compile(r"(?:RetryLater|RefreshAbandoned|GivenUp)\((['\"])(.*)\1\)", re.DOTALL)
_TOKEN: Final = re.compile(r"(token=\d+) ([^;]+)$")


def set_up_flower(broker_url: str) -> None:
    """Configure Flower if it is the Celery command being run; otherwise do nothing."""
    context = click.get_current_context(silent=True)
    if context is not None and context.find_root().invoked_subcommand == "flower":
        set_up_once(broker_url)


@functools.cache
def set_up_once(broker_url: str) -> None:
    """Set Flower's defaults and fixes, and the checks of its configuration."""
    import flower.options  # noqa: F401 - it defines what is set here
    from flower import command, urls
    from flower.app import Flower
    from tornado.options import options

    Flower.pool_executor_cls = DaemonExecutor
    if broker_url.startswith("unix:") or "+" in broker_url.partition("://")[0]:
        _count_queues_at(broker_url)
    command.sigterm_handler = _end_by_loop
    urls.settings["ui_modules"] = {"Template": _styled_template()}

    for name, value in DEFAULTS.items():
        setattr(options, name, value)
    options.format_task = format_task
    # At DEBUG level Flower logs its own settings, including the cookie's secret.
    getLogger("flower.command").setLevel(INFO)
    options.add_parse_callback(_AccessCheck(options))


def _count_queues_at(broker_url: str) -> None:
    """Make Flower count the queues of a broker behind Sentinels or on a Unix socket.

    Flower's own code asks only the first Sentinel, and assumes database 0 and the default user for a socket.
    """
    import redis.asyncio
    from flower import views
    from flower.utils.broker import RedisBase

    class Broker(RedisBase):  # type: ignore[misc, unused-ignore]
        def __init__(self, _url: str, **options: Any) -> None:
            super().__init__("", **options)
            maker = async_connection_maker(broker_url, timeout_seconds=self.socket_timeout)
            self.redis = redis.asyncio.Redis(connection_pool=maker.pool)

    views.Broker = Broker


def _styled_template() -> type:
    """Return the module of the navigation on each of Flower's pages, extended by a style."""
    from tornado.web import TemplateModule

    style = Path(__file__).with_suffix(".css").read_text(encoding="utf-8")

    class Template(TemplateModule):  # type: ignore[misc, unused-ignore]
        def embedded_css(self) -> str:
            application: Any = self.handler.application
            columns = application.options.tasks_columns.split(",")
            labels = (
                f'  #tasks-table td:not(.dataTables_empty):nth-child({number})::before {{ content: "{name.strip()}"; }}'
                for number, name in enumerate(columns, 1)
                if name.strip().isidentifier()
            )
            return "\n".join((style, "@media (max-width: 991.98px) {", *labels, "}"))

    return Template


def _end_by_loop(_signal: int, _frame: object) -> None:
    """Handle SIGTERM by ending Flower from a callback of its loop.

    Flower raises SystemExit wherever the signal arrives. Python drops that within a finalizer, for example of a closed
    connection, and Flower would go on.
    """
    from tornado.ioloop import IOLoop

    IOLoop.current().add_callback_from_signal(sys.exit)


class DaemonExecutor(ThreadPoolExecutor):
    """Runs each call on a daemon thread of its own.

    Python waits at exit for an executor's threads, and Flower's query the broker for as long as it is unreachable.
    Nothing is lost with a query, and Flower itself bounds the number of concurrent ones.
    """

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Run ``fn``, whose result or exception becomes the future's."""
        future: Future[T] = Future()

        def run() -> None:
            if future.set_running_or_notify_cancel():
                try:
                    future.set_result(fn(*args, **kwargs))
                except BaseException as error:  # noqa: BLE001 - the future's
                    future.set_exception(error)

        threading.Thread(target=run, name="flower-query", daemon=True).start()
        return future


class _AccessCheck:
    """Ends Flower if it is insecure; called after Flower has read the command line, and again after its file."""

    def __init__(self, options: Any) -> None:
        self._options, self._is_file_read = options, False

    def __call__(self) -> None:
        if not self._is_file_read and Path(self._options.conf).is_file():
            self._is_file_read = True
            return
        problem = insecure_configuration(self._options, os.environ)
        if problem:
            raise SystemExit(f"error: {problem}")
        if not requires_auth(self._options):
            click.echo(
                f"warning: Flower on {self._options.address} needs no password, and every user of this machine can "
                "read it: set FLOWER_BASIC_AUTH=user:password",
                err=True,
            )


def requires_auth(options: Any) -> bool:
    """Return whether Flower, with these ``options``, requires a password or OAuth."""
    return bool(options.basic_auth) or bool(options.auth_provider and options.auth)


def insecure_configuration(options: Any, environ: Mapping[str, str]) -> str:
    """Return the way in which Flower would be open to anyone, with the remedy, or "" if it would not."""
    if environ.get("FLOWER_UNAUTHENTICATED_API", "").lower() not in _NO:
        return "FLOWER_UNAUTHENTICATED_API opens Flower's API to anyone: unset it"
    if not all(user and password for user, _, password in (one.partition(":") for one in options.basic_auth or ())):
        return "FLOWER_BASIC_AUTH is not valid: expected user:password, comma-separated, none of them empty"
    if not requires_auth(options) and (options.unix_socket or options.address not in LOOPBACK):
        return (
            f"Flower would listen on {options.unix_socket or options.address or 'every interface'} and let anyone in: "
            "set FLOWER_BASIC_AUTH=user:password (or --auth_provider and --auth for OAuth), or listen on 127.0.0.1"
        )
    return ""


def format_task(task: Any) -> Any:
    """Return a task, Flower's own copy, formatted for pages.

    ``result`` has the outcome of the last attempt, whatever its state, beginning with the most important part, since
    the list truncates it. Query and key are shown only once, in ``name`` and ``args``.
    """
    outcome = _OUTCOME_ERROR.search(task.exception or "")
    if outcome is not None:
        task.traceback = None
    if task.state in {"RETRY", "FAILURE"}:
        task.result = outcome[2] if outcome is not None else task.exception
    elif task.result:
        task.result = _TOKEN.sub(r"\2 \1", task.result.strip("'\""))
    return _without_repeats(task)


def _without_repeats(task: Any) -> Any:
    query = (task.name or "").removeprefix(display_name(""))
    if of_one := re.fullmatch(rf"{re.escape(query)} (v\d+ ([0-9a-f]+) \w+)", task.args or ""):
        task.args = of_one[1]
        task.result = task.result and task.result.replace(f" {query} {of_one[2]}", "", 1)
    elif re.match(r"×\d+: ", task.args or ""):
        task.args = task.args.replace(f"{query} v", "v")
        task.result = task.result and re.sub(rf"\b{re.escape(query)} ×\d+: ", "", task.result, count=1)
    return task
