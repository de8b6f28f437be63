"""The one task: it decodes a message, calls the flow for each item, and sends what is to be retried."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping, Sequence
from time import monotonic
from typing import TYPE_CHECKING, Any, Final

import msgspec

from api_client.config.broker import MESSAGE_EXPIRES_SECONDS, queue_of
from api_client.errors import CacheUnavailable
from api_client.protocol import messages
from api_client.protocol.messages import MalformedMessage, RefreshItem
from api_client.trigger.broker import monitoring_options
from refresher.flow.events import events_of
from refresher.flow.outcome import Outcome, OutcomeKind
from refresher.worker.celery_fixes.message_guard import DropReason
from refresher.worker.celery_fixes.soft_limit import soft_limit
from refresher.worker.shutdown import end_process

if TYPE_CHECKING:
    from celery import Celery

    from refresher.settings import WorkerSettings
    from refresher.worker.runtime import PerProcess, Runtime

log: Final = logging.getLogger(__name__)

MAX_CACHE_RETRIES: Final = 3
CACHE_RETRY_SECONDS: Final = 5


def add_task(app: Celery, runtimes: PerProcess, options: Mapping[str, Any]) -> None:
    """Register the refresh task on ``app``, with these of Celery's options for a task."""
    # What it throws has been logged already: Celery logs it in one line, without a traceback.
    registered = app.task(bind=True, name=messages.TASK_NAME, max_retries=None, throws=(RefreshAbandoned,), **options)

    @registered  # type: ignore[untyped-decorator, unused-ignore]
    def refresh(task: Any, message: object) -> str:
        """Refresh the items of one message; returns their outcomes as text, which monitors show."""
        try:
            items = messages.decode(message)
        except MalformedMessage as error:
            log.error("rejected an unrecognised message: %s", error)
            events_of(task.app).message_dropped(reason=DropReason.NOT_OURS.value)
            return f"dropped: {error}"
        runtime = runtimes.get()
        try:
            with soft_limit.in_task():
                return _refresh_all(task, runtime, items)
        finally:
            # A worker that shuts down ends in order, and takes the load with it.
            if runtime.graph.hangs and not runtime.shuts_down():
                end_process(runtime.refresher.hand_back_all, runtime.settings.hard_limit_seconds)

    # For `celery_fixes.lost_runs`, which looks a lost process's runs up from the main one.
    app.tasks[messages.TASK_NAME].refresher_runtimes = runtimes


def _refresh_all(task: Any, runtime: Runtime, items: Sequence[RefreshItem]) -> str:
    began, settings, is_alone = monotonic(), runtime.settings, len(items) == 1
    # The node's name, as Flower and `celery inspect` show it, and the process of its pool.
    owner = f"{task.request.hostname}:{os.getpid()}" if task.request.hostname else None
    outcomes: list[str] = []
    for done, item in enumerate(items):
        # Each item may take a whole budget: what does not fit before the soft limit goes back as a message of its own.
        is_late = monotonic() - began + settings.budget_seconds > settings.soft_limit_seconds
        if done and (is_late or runtime.graph.hangs):
            resend(task.app, _routing_key(task), settings, items[done:], countdown=None)
            break
        try:
            with runtime.spans.processing(item, task.request, settings) as end_span:
                end_span(outcome := _refresh(runtime, item, owner))
            if outcome.again is not None:
                # Before the next item begins: whatever happens to that one, this one's ticket is on its way.
                _schedule_retry(task, settings, outcome, outcome.again, is_alone=is_alone)
            if outcome.kind is OutcomeKind.FAILED and is_alone:
                raise RefreshAbandoned(f"dead: {outcome}")
        except Exception as error:
            if is_alone:
                raise
            log.error("the refresh of %.100r, one of several, ended with %s", item.query, type(error).__name__)
            outcomes.append(f"error ({type(error).__name__}) {item.query}")
        else:
            outcomes.append(str(outcome))
    return "; ".join(outcomes)


def _refresh(runtime: Runtime, item: RefreshItem, owner: str | None) -> Outcome:
    try:
        with runtime.slots.hold(item) as deferred:
            return deferred or runtime.refresher.refresh(item, owner)
    except CacheUnavailable:
        # Counted in the item: Celery's counter goes up with the load's attempts too, and ends with the message.
        if item.cache_attempt >= MAX_CACHE_RETRIES:
            raise
        again = msgspec.structs.replace(item, cache_attempt=item.cache_attempt + 1)
        why = "cache_unavailable"
        return Outcome(OutcomeKind.RETRY, item.query, why=why, again=again, pause_seconds=CACHE_RETRY_SECONDS)


def _schedule_retry(
    task: Any, settings: WorkerSettings, outcome: Outcome, item: RefreshItem, *, is_alone: bool
) -> None:
    """Send an item for its next attempt: as the task's own retry, which monitors show, where the item is alone."""
    if not is_alone:
        resend(task.app, _routing_key(task), settings, [item], countdown=outcome.pause_seconds)
        return
    raise task.retry(
        args=(messages.encode([item]),),
        countdown=outcome.pause_seconds,
        exc=RetryLater(str(outcome)),
        throw=False,
        # Left to Celery, the key of a message that was paused would grow at each pause.
        queue=queue_of(settings.namespace, settings.broker_url, _routing_key(task)),
        **monitoring_options([item], settings.namespace),
    )


def resend(
    app: Celery, routing_key: str, settings: WorkerSettings, items: Sequence[RefreshItem], *, countdown: int | None
) -> None:
    """Send items of a message again, as a message of their own, into the queue that it came from."""
    app.send_task(
        messages.TASK_NAME,
        args=(messages.encode(items),),
        countdown=countdown,
        queue=queue_of(settings.namespace, settings.broker_url, routing_key),
        expires=MESSAGE_EXPIRES_SECONDS,
        serializer="json",  # whatever the app of an application has for its own
        **monitoring_options(items, settings.namespace),
    )


def _routing_key(task: Any) -> str:
    return str(task.request.delivery_info["routing_key"])


class RefreshAbandoned(Exception):
    """The outcome of a refresh that is not retried: fails its task, for monitors that count tasks."""


class RetryLater(Exception):
    """The outcome of a refresh that is retried later."""
