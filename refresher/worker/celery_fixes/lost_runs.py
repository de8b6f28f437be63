"""Ends of refreshes whose process is gone: killed, ended by the loader itself, or by the hard time limit.

Otherwise the lease would expire and the next reader would claim, so that a load that kills its process would do so
again and again, unreported. So the worker's main process, which knows its child's task, ends the run in the child's
place: one more attempt, then backoff and a dead letter.
"""

from __future__ import annotations

import logging
import threading
from contextlib import closing
from datetime import UTC, datetime, timedelta, tzinfo
from typing import TYPE_CHECKING, Any, Final

from billiard.exceptions import WorkerLostError
from celery.worker import state

from api_client.config.broker import queue_of
from api_client.errors import CacheError
from api_client.protocol import messages
from api_client.protocol.messages import MalformedMessage, RefreshItem
from refresher.errors import LoadFailed
from refresher.ops.forks import fork_gate
from refresher.settings import MAX_RETRY_PAUSE_SECONDS

if TYPE_CHECKING:
    from refresher.worker.runtime import Runtime

    class _Request:
        """The part of Celery's class in use here, which has no types."""

        _eta: datetime | None

        def __init__(self, message: Any, **options: Any) -> None: ...
        def on_failure(self, exc_info: Any, *args: Any, **options: Any) -> Any: ...
        def on_timeout(self, soft: bool, timeout: float) -> None: ...  # noqa: FBT001
        def cancel(self, pool: Any, signal: Any = None, *, emit_retry: bool = True) -> None: ...
        def __getattr__(self, name: str) -> Any: ...
else:
    from celery.worker.request import Request as _Request

log: Final = logging.getLogger(__name__)

# Two, because the process may have been killed through another's fault, for example by a kernel short of memory.
MAX_ATTEMPTS: Final = 2
MAX_PAUSE: Final = timedelta(seconds=MAX_RETRY_PAUSE_SECONDS)


class RefreshRequest(_Request):
    """A message on its way through the worker's main process, which ends its runs if their process can't."""

    # All of our messages expire. Celery would parse that time and look up its own time zone, at three times the cost of
    # the whole `message_guard`, which has already checked that they are times, in UTC unless stated.
    tzlocal: tzinfo = UTC

    def __init__(self, message: Any, **options: Any) -> None:
        super().__init__(message, maybe_iso8601=datetime.fromisoformat, **options)
        if self._eta is not None:
            # A pause travels as a time by the sender's clock, which may be ahead of this one by hours.
            self._eta = min(self._eta, datetime.now(UTC) + MAX_PAUSE)

    def on_failure(self, exc_info: Any, *args: Any, **options: Any) -> Any:
        """Handle a task's end by an error, such as the loss of its process."""
        error = getattr(exc_info.exception, "exc", exc_info.exception)
        if isinstance(error, WorkerLostError) and not state.should_terminate:
            self._end_runs("worker_lost", "the worker's pool process ended during the load")
        return super().on_failure(exc_info, *args, **options)

    def on_timeout(self, soft: bool, timeout: float) -> None:  # noqa: FBT001 - as Celery calls it
        """Handle a time limit; at the hard one the pool kills the process."""
        super().on_timeout(soft, timeout)
        if not soft and not state.should_terminate:
            self._end_runs("hard_timeout", f"the load exceeded the hard limit of {timeout:g} s, and was killed")

    def cancel(self, pool: Any, signal: Any = None, emit_retry: bool = True) -> None:  # noqa: FBT001, FBT002 - as Celery
        """Cancel the task at a cold shutdown of the worker (for which Celery sends no signal)."""
        if not emit_retry:
            self.task.app.refresher_shutdown.set()
        super().cancel(pool, signal, emit_retry=emit_retry)

    def _end_runs(self, kind: str, text: str) -> None:
        # Off the main process's loop, since the cache may be slow to answer.
        failure = LoadFailed(kind, text, is_transient=True, max_attempts=MAX_ATTEMPTS)
        threading.Thread(target=self.end_runs_now, args=(failure,), name="lost-runs", daemon=True).start()

    def end_runs_now(self, failure: LoadFailed) -> None:
        """End and resend the lost process's items, logging any error."""
        # With a runtime of its own, so that no process forked meanwhile gets its connections.
        try:
            with fork_gate.at_work(), closing(self.task.refresher_runtimes.make()) as runtime:
                self._end(runtime, failure)
        except (CacheError, MalformedMessage, OSError) as error:
            log.warning("could not end a lost refresh; its lease will expire: %s", type(error).__name__)

    def _end(self, runtime: Runtime, failure: LoadFailed) -> None:
        items = messages.decode(self.args[0])
        for item in items:
            try:
                self._end_one(runtime, item, failure, was_alone=len(items) == 1)
            except Exception as error:  # noqa: BLE001 - whatever cache or broker raise, the others have runs of their own
                log.warning("could not end or resend a lost refresh: %s", type(error).__name__)

    def _end_one(self, runtime: Runtime, item: RefreshItem, failure: LoadFailed, *, was_alone: bool) -> None:
        from refresher.worker.tasks import resend

        run = runtime.run_held_by(item, f"{self._hostname}:{self.worker_pid}")
        if run is None:
            return
        outcome = runtime.refresher.finish_lost_run(run, failure, was_alone=was_alone)
        log.error("%s", outcome)
        if outcome.again is not None:
            settings = runtime.settings
            queue = queue_of(settings.namespace, settings.broker_url, self.delivery_info["routing_key"])
            resend(self.task.app, queue, settings, [outcome.again], countdown=outcome.pause_seconds)
