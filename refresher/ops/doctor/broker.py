"""Checks of the broker, and of the workers found through it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from typing import Final

from redis.exceptions import NoPermissionError, RedisError

from api_client.config.broker import miss_queue, queues, refresh_queue
from api_client.transport.wire import reason
from api_client.trigger.broker import fault_text
from refresher.ops.broker import consumed_queues, queue_lengths
from refresher.ops.broker import replaced_keys as find_replaced_keys
from refresher.ops.doctor.deployment import FULL_SHARE, TIMEOUT_SECONDS, Deployment, used_share
from refresher.ops.doctor.findings import Finding, ok, problem, unreachable, warning
from refresher.ops.permissions import is_forbidden

ANSWER_SECONDS: Final = 2.0
"""Time for workers to reply, whose number is unknown."""


def replaced_keys(deployment: Deployment) -> Iterator[Finding]:
    """Report keys of a broker on Redis that something else has replaced."""
    if deployment.redis_broker is not None:
        names = [queue.name for queue in queues(deployment.worker.namespace, deployment.worker.broker_url)]
        deployment.replaced_keys = find_replaced_keys(deployment.redis_broker, names)
        yield from (problem(key.fault, key.remedy) for key in deployment.replaced_keys)


def lengths(deployment: Deployment) -> Finding:
    """Check that the broker can be reached, and the number of queued refreshes."""
    waiting = queue_lengths(deployment.worker)
    queued = f"{waiting.refresh} background refreshes and {waiting.miss} blocking refreshes queued"
    bound, remedy = deployment.reader.queue_size, "start more workers, or find out what they wait for"
    if waiting.refresh > bound:
        return warning(f"{queued}; early ones are dropped beyond {bound}", remedy)
    return warning(queued, remedy) if waiting.miss > bound else ok(f"reachable: {queued}")


def unusable(deployment: Deployment, error: Exception) -> Finding:
    """Return the finding that the broker can't be used, with the variable that was set."""
    worker = deployment.worker
    return unreachable(worker.variable_of("broker_url"), worker.broker_url, error)


def memory(deployment: Deployment) -> Iterator[Finding]:
    """Check maxmemory and its policy on a broker on Redis, and that it is not the cache's server."""
    if deployment.redis_broker is None:
        return
    try:
        info = deployment.redis_broker.info()
    except NoPermissionError:
        raise
    except (RedisError, OSError) as error:
        yield warning(f"skipped: {reason(error)}", "allow INFO")
        return
    policy, used = str(info.get("maxmemory_policy", "")), used_share(info)
    if policy != "noeviction":
        yield problem(
            f"{policy} drops queues once the memory is full",
            "CONFIG SET maxmemory-policy noeviction, on a server of its own",
        )
    elif used >= FULL_SHARE:
        yield problem(
            f"full ({used:.0%} of maxmemory): nothing can be published",
            "find out what fills it (redis-cli --bigkeys); start workers if it is the queues, or raise maxmemory",
        )
    elif info.get("run_id") == deployment.cache_run_id:
        yield warning(
            "broker and cache are one server: one of them has the wrong policy",
            "one server each: allkeys-lru (volatile-lru with tags) for the cache, noeviction for the broker",
        )
    else:
        yield ok(f"{policy}, {used:.0%} used" if info.get("maxmemory") else policy)


def workers(deployment: Deployment) -> Finding:
    """Check that a worker consumes the queues of CACHE_NAMESPACE."""
    from api_client.trigger.private_app import PublishingApp

    worker = deployment.worker
    try:
        with closing(PublishingApp.to(worker.broker_url, TIMEOUT_SECONDS)) as app:
            consumed = consumed_queues(app, ANSWER_SECONDS)
    except Exception as error:  # any error of a broker
        if is_forbidden(error):
            raise
        return problem(f"no reply: {fault_text(error)}", "fix the broker, then check again")
    wanted = {make(worker.namespace, worker.broker_url) for make in (miss_queue, refresh_queue)}
    ours = sorted({name for name, names in consumed if wanted <= names})
    replied = Counter(name for name, _ in consumed)
    if shared := [name for name in ours if replied[name] > 1]:
        return warning(
            f"{replied[shared[0]]} have the name {shared[0]}: status and Celery show one of them",
            "a name for each: celery -A refresher worker -n NAME@%h",
        )
    if ours:
        return ok(f"{len(ours)} consume: {', '.join(ours)[:200]}")
    others = f"{len(consumed)} reply, none consumes {' and '.join(sorted(wanted))}" if consumed else "none replies"
    return problem(
        f"{others}: nothing is refreshed",
        f"celery -A refresher worker, with the same {worker.variable_of('broker_url')} and CACHE_NAMESPACE",
    )
