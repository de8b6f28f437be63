"""The job of django-cacheback, its configuration without a project, and the Celery app of its worker.

``celery -A benchmarks.stampede.strategies.cacheback_job`` takes everything from its environment.
"""

from __future__ import annotations

import functools
import os
from typing import Any, Final

from celery import Celery

from benchmarks.competitors.connections import configure_django
from benchmarks.stampede.config import CONFIG, POOL_CONNECTIONS, POOL_WAIT_SECONDS, Config
from benchmarks.stampede.origin import Origin
from benchmarks.stampede.recorder import Mark, record
from benchmarks.stampede.strategies.strategy import Value

VARIANT: Final = "BENCH_STAMPEDE_LANE"
QUEUE: Final = "cacheback"
_WORKER_PROCESSES: Final = 4  # as many as this project's worker has
_POOL: Final[dict[str, Any]] = {
    "CONNECTION_POOL_CLASS": "redis.BlockingConnectionPool",
    "CONNECTION_POOL_KWARGS": {"max_connections": POOL_CONNECTIONS, "timeout": POOL_WAIT_SECONDS},
}
_SETTINGS: Final = {"CACHEBACK_TASK_IGNORE_RESULT": True, "CACHEBACK_VALIDATE_JOB_REFRESH_NEEDED": True}


def configured_job(config: Config, variant: str) -> Any:
    """Configure Django and Celery, once per process, and return the job's class.

    A task names the class by its module, so the class is set there as if it had been defined there.
    """
    found: Any = globals().get("StampedeJob")
    if found is None:
        prefix = f"{config.servers.namespace}:{variant}"
        configure_django(config.servers.cache_url, prefix, _POOL, **_SETTINGS)
        _celery_app(config)
        found = globals()["StampedeJob"] = _job_class(config, Origin(config, variant))
    return found


@functools.cache
def _celery_app(config: Config) -> Celery:
    # On the same broker as this project, with Celery's options for a hot path, so that no results are kept.
    app = Celery("cacheback", broker=config.servers.broker_url)
    app.conf.update(
        task_default_queue=QUEUE,
        task_ignore_result=True,
        worker_concurrency=_WORKER_PROCESSES,
        broker_connection_retry_on_startup=True,
    )
    app.set_default()
    return app


def _job_class(config: Config, origin: Origin) -> type:
    from cacheback.base import Job

    class StampedeJob(Job):  # type: ignore[misc, unused-ignore] # no type information is shipped
        lifetime = config.expires_seconds
        refresh_timeout = config.lease_seconds
        cache_ttl = int(config.hard_seconds)

        def fetch(self, number: int) -> Value:
            value: Value = origin.compute(number)
            return value

        def process_result(self, result: Any, call: Any, cache_status: int, sync_fetch: Any = None) -> Any:
            if cache_status == self.MISS:
                record(Mark.MISS)
            elif cache_status == self.STALE:
                record(Mark.EARLY)
            return result

    StampedeJob.__module__, StampedeJob.__qualname__ = __name__, StampedeJob.__name__
    return StampedeJob


if CONFIG in os.environ and VARIANT in os.environ:  # in the worker, where Celery looks for `app`
    _config = Config.from_environ()
    app: Celery = _celery_app(_config)
    configured_job(_config, os.environ[VARIANT])
    import cacheback.tasks  # noqa: F401 - registers the task; it reads Django's settings
