"""What `refresher doctor` finds at the broker: its answer, its memory, and the workers that it leads to."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import urlsplit

from redis.exceptions import NoPermissionError, RedisError

from api_client.broker_settings import miss_queue, queues, refresh_queue
from api_client.redis_edge import connect, reason
from api_client.settings import ReaderSettings
from refresher.broker_keys import replaced_keys
from refresher.findings import FULL_SHARE, Finding, Level, unreachable, used_share
from refresher.rights import forbidden
from refresher.settings import WorkerSettings
from refresher.status_broker import queues_of


def of_broker(
    settings: WorkerSettings,
    reader: ReaderSettings,
    cache_run_id: str,
    *,
    timeout_seconds: float,
    answer_seconds: float,
) -> Iterator[Finding]:
    """Look at the broker, then at what can be found through it.

    Args:
        settings: where it is.
        reader: how many refreshes may wait.
        cache_run_id: the cache's, to see whether it is the same server.
        timeout_seconds: for each step.
        answer_seconds: how long workers have to answer: nobody knows how many there are.
    """
    is_redis = urlsplit(settings.broker_url).scheme in {"redis", "rediss"}
    replaced = _replaced_keys(settings, timeout_seconds) if is_redis else []
    yield from replaced
    try:
        waiting = queues_of(settings)
    except Exception as error:  # noqa: BLE001 - whatever a broker raises
        if not replaced:
            yield unreachable("broker", "CACHE_BROKER_URL", settings.broker_url, error)
        return
    said = f"{waiting.refresh} refreshes wait, and {waiting.miss} for which readers wait"
    mend = "start more workers, or find out what they wait for"
    if waiting.refresh > reader.queue_size:
        dropped = f"{said}; early ones are dropped beyond {reader.queue_size}"
        yield Finding("broker", Level.WARNING, dropped, mend)
    elif waiting.miss > reader.queue_size:
        yield Finding("broker", Level.WARNING, said, mend)
    else:
        yield Finding("broker", Level.OK, f"answers: {said}")
    if is_redis:
        yield _memory(settings, cache_run_id, timeout_seconds)
    yield _workers(settings, timeout_seconds, answer_seconds)


def _replaced_keys(settings: WorkerSettings, timeout_seconds: float) -> list[Finding]:
    client = connect(settings.broker_url, timeout_seconds=timeout_seconds)
    names = [queue.name for queue in queues(settings.namespace, settings.broker_url)]
    try:
        return [Finding("broker's keys", Level.PROBLEM, key.fault, key.remedy) for key in replaced_keys(client, names)]
    except NoPermissionError as error:
        return [forbidden("broker's keys", error)]
    except (RedisError, OSError):
        return []  # the next check says so
    finally:
        client.close()


def _memory(settings: WorkerSettings, cache_run_id: str, timeout_seconds: float) -> Finding:
    client = connect(settings.broker_url, timeout_seconds=timeout_seconds)
    try:
        info = client.info()
    except (RedisError, OSError) as error:
        return Finding("broker's memory", Level.WARNING, f"could not be looked at: {reason(error)}", "allow INFO")
    finally:
        client.close()
    policy, used = str(info.get("maxmemory_policy", "")), used_share(info)
    if policy != "noeviction":
        return Finding(
            "broker's memory", Level.PROBLEM, f"{policy} drops queues once the memory is full",
            "CONFIG SET maxmemory-policy noeviction, on a server of its own",
        )  # fmt: skip
    if used >= FULL_SHARE:
        return Finding(
            "broker's memory", Level.PROBLEM, f"it is full ({used:.0%} of maxmemory): nothing can be published",
            "find out what fills it (redis-cli --bigkeys), start workers if it is the queues, or raise maxmemory",
        )  # fmt: skip
    if info.get("run_id") == cache_run_id:
        return Finding(
            "broker's memory", Level.WARNING, "broker and cache are one server: one of them has the wrong policy",
            "a server each: allkeys-lru for the cache, noeviction for the broker",
        )  # fmt: skip
    return Finding("broker's memory", Level.OK, f"{policy}, {used:.0%} used" if info.get("maxmemory") else policy)


def _workers(settings: WorkerSettings, timeout_seconds: float, answer_seconds: float) -> Finding:
    from amqp.exceptions import AccessRefused  # type: ignore[import-untyped]  # py-amqp has no types

    from api_client.private_app import PublishingApp

    start = "celery -A refresher worker, with the same CACHE_BROKER_URL and CACHE_NAMESPACE"
    app = PublishingApp.to(settings.broker_url, timeout_seconds)
    try:
        queues_of_each = app.control.inspect(timeout=answer_seconds).active_queues() or {}
    except Exception as error:  # noqa: BLE001 - whatever a broker raises
        if isinstance(error, NoPermissionError | AccessRefused):
            return forbidden("workers", error)
        cause = error.__cause__ or error
        why = reason(cause) if isinstance(cause, RedisError | OSError) else type(cause).__name__
        return Finding("workers", Level.PROBLEM, f"can't be asked: {why}", "mend the broker; then ask again")
    finally:
        app.close()
    wanted = {make(settings.namespace, settings.broker_url) for make in (miss_queue, refresh_queue)}
    ours = sorted(name for name, queues in queues_of_each.items() if wanted <= {queue["name"] for queue in queues})
    if ours:
        return Finding("workers", Level.OK, f"{len(ours)} consume: {', '.join(ours)[:200]}")
    others = f"{len(queues_of_each)} answer, none consumes {' and '.join(sorted(wanted))}"
    return Finding(
        "workers", Level.PROBLEM, f"{others if queues_of_each else 'none answers'}: nothing is refreshed", start
    )
