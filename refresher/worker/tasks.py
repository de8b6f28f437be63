"""The refresh task, which decodes a message, calls the flow for its items, and sends retries."""

from __future__ import annotations

import logging
import os
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from time import monotonic
from typing import TYPE_CHECKING, Any, Final, NoReturn

import msgspec

from api_client.config.broker import MESSAGE_EXPIRES_SECONDS, queue_of
from api_client.errors import CacheUnavailable
from api_client.protocol import messages
from api_client.protocol.messages import MalformedMessage, RefreshItem
from api_client.trigger.broker import monitoring_options
from refresher.flow.budgets import NO_BUDGET
from refresher.flow.outcome import Outcome, OutcomeKind, summary
from refresher.flow.ports import DropReason, events_of
from refresher.flow.put_back import UNKNOWN_QUERY, WRONG_PARAMS
from refresher.worker.celery_fixes.soft_limit import soft_limit
from refresher.worker.shutdown import end_process
from refresher.worker.slots import NO_SLOT

if TYPE_CHECKING:
    from celery import Celery
    from kombu import Queue

    from refresher.queries import Registry
    from refresher.settings import WorkerSettings
    from refresher.worker.runtime import PerProcess, Runtime

log: Final = logging.getLogger(__name__)

MAX_CACHE_RETRIES: Final = 3
CACHE_RETRY_SECONDS: Final = 5
CACHE_UNAVAILABLE: Final = "cache_unavailable"


def add_task(app: Celery, runtimes: PerProcess, options: Mapping[str, Any]) -> None:
    """Register the refresh task on ``app``, with these Celery task options."""
    # These errors have already been logged, so Celery logs them in one line without a traceback.
    registered = app.task(bind=True, name=messages.TASK_NAME, max_retries=None, throws=(RefreshAbandoned,), **options)

    @registered  # type: ignore[untyped-decorator, unused-ignore]
    def refresh(task: Any, message: object) -> str:
        """Refresh the items of one message; return their outcomes as text for monitors."""
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
            # A worker that shuts down ends in order, and the hanging load with it.
            if runtime.graph.hangs and not runtime.shuts_down():
                end_process(runtime.refresher.hand_back_all, runtime.settings.hard_limit_seconds)

    # For `celery_fixes.lost_runs`, which looks up a lost process's runs from the main process.
    app.tasks[messages.TASK_NAME].refresher_runtimes = runtimes


def _refresh_all(task: Any, runtime: Runtime, items: Sequence[RefreshItem]) -> str:
    began, settings = monotonic(), runtime.settings
    # The node's name, as Flower and `celery inspect` show it, and the pool process.
    owner = f"{task.request.hostname}:{os.getpid()}" if task.request.hostname else None
    outcomes: list[Outcome] = []
    for loaded_together in _groups_of(items, runtime.queries):
        # Each load may take a whole budget, so items that do not fit before the soft limit go back as another message.
        is_late = monotonic() - began + settings.budget_seconds > settings.soft_limit_seconds
        if outcomes and (is_late or runtime.graph.hangs):
            resend(task.app, _queue(task, settings), settings, items[len(outcomes) :], countdown=None)
            break
        try:
            outcomes += _refresh_group(task, runtime, loaded_together, owner, is_alone=len(items) == 1)
        except Exception as error:
            if len(items) == 1:
                raise
            names = type(error).__name__, len(loaded_together), loaded_together[0].query
            log.error("%s ended the refresh of %d of several items: %.100r", *names)
            outcomes += [Outcome(OutcomeKind.FAILED, item.query, why=type(error).__name__) for item in loaded_together]
    if outcomes and all(outcome.kind is OutcomeKind.FAILED for outcome in outcomes):  # a probe has no outcomes
        raise RefreshAbandoned(f"dead: {summary(outcomes)}")
    return summary(outcomes)


def _groups_of(items: Sequence[RefreshItem], queries: Registry) -> Iterator[Sequence[RefreshItem]]:
    """Divide items into groups to load together: as many of one query as its loader takes, in order."""
    for (name, version), of_one_query in groupby(items, key=lambda item: (item.query, item.version)):
        query = queries.find(name, version)
        size = (query and query.batch) or 1
        group = list(of_one_query)
        yield from (group[at : at + size] for at in range(0, len(group), size))


def _refresh_group(
    task: Any, runtime: Runtime, items: Sequence[RefreshItem], owner: str | None, *, is_alone: bool
) -> list[Outcome]:
    with runtime.spans.processing(items, task.request, runtime.settings) as end_spans:
        with runtime.slots.hold(items) as deferred:
            ended = deferred or runtime.refresher.refresh_together(items, owner)
        outcomes = [_outcome_of(one, item, is_alone=is_alone) for one, item in zip(ended, items, strict=True)]
        end_spans(outcomes)
    # Before the next load begins, so that these tickets are on their way whatever happens to it.
    _schedule_retries(task, runtime.settings, outcomes, is_alone=is_alone)
    return outcomes


def _outcome_of(ended: Outcome | CacheUnavailable, item: RefreshItem, *, is_alone: bool) -> Outcome:
    if isinstance(ended, Outcome):
        return ended
    log.warning("the cache could not be used for a refresh of %s: %s", item.query, ended)
    # Counted in the item, because Celery's counter also counts the load's attempts, and ends with the message.
    if item.cache_attempt < MAX_CACHE_RETRIES:
        again = msgspec.structs.replace(item, cache_attempt=item.cache_attempt + 1)
        return Outcome(
            OutcomeKind.RETRY, item.query, why=CACHE_UNAVAILABLE, again=again, pause_seconds=CACHE_RETRY_SECONDS
        )
    if is_alone:
        raise ended
    return Outcome(OutcomeKind.FAILED, item.query, why=CACHE_UNAVAILABLE)


def _schedule_retries(task: Any, settings: WorkerSettings, outcomes: Sequence[Outcome], *, is_alone: bool) -> None:
    """Send items for their next attempts, an item alone in its message by the task's own retry, which monitors show.

    Failed items are sent in messages of their own; items that have not been tried yet stay together.
    """
    together: defaultdict[int, list[RefreshItem]] = defaultdict(list)
    for outcome in outcomes:
        if outcome.again is None:
            continue
        if is_alone:
            _retry(task, settings, outcome, outcome.again)
        elif outcome.why in {NO_SLOT, NO_BUDGET, CACHE_UNAVAILABLE, UNKNOWN_QUERY, WRONG_PARAMS}:
            together[outcome.pause_seconds].append(outcome.again)
        else:
            resend(task.app, _queue(task, settings), settings, [outcome.again], countdown=outcome.pause_seconds)
    for pause_seconds, items in together.items():
        resend(task.app, _queue(task, settings), settings, items, countdown=pause_seconds)


def _retry(task: Any, settings: WorkerSettings, outcome: Outcome, item: RefreshItem) -> NoReturn:
    raise task.retry(
        args=(messages.encode([item]),),
        countdown=outcome.pause_seconds,
        exc=RetryLater(str(outcome)),
        throw=False,
        # If left to Celery, a paused message's routing key would grow with each pause.
        queue=_queue(task, settings),
        **monitoring_options([item], settings.namespace),
    )


def resend(
    app: Celery, queue: Queue, settings: WorkerSettings, items: Sequence[RefreshItem], *, countdown: int | None
) -> None:
    """Send items again, as a message of their own, into a refresh queue."""
    app.send_task(
        messages.TASK_NAME,
        args=(messages.encode(items),),
        countdown=countdown,
        queue=queue,
        expires=MESSAGE_EXPIRES_SECONDS,
        serializer="json",  # whatever an application's app uses
        **monitoring_options(items, settings.namespace),
    )


def _queue(task: Any, settings: WorkerSettings) -> Queue:
    """Return the queue of a task's message."""
    return queue_of(settings.namespace, settings.broker_url, str(task.request.delivery_info["routing_key"]))


class RefreshAbandoned(Exception):
    """A refresh has failed without a retry; it fails its task, for monitors that count tasks."""


class RetryLater(Exception):
    """A refresh has failed and is retried later."""
