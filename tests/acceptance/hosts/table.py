"""The hosts, each with the broker that it is tried with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal, TypeAlias

Broker: TypeAlias = Literal["redis", "rabbitmq"]

BROKER: Final = "TEST_HOST_BROKER"
"""The variable that names the host's own broker, and where its results go."""
CELERY_APP: Final = "TEST_HOST_CELERY_APP"
"""The variable that says when the host makes its Celery app: ``first``, or ``last``, when it has used the cache."""
PORTS: Final = "TEST_HOST_PORTS"
"""The variable that names the servers' ports: ``redis=6379,broker=5672``."""
USED_BEFORE_FORK: Final = "TEST_HOST_USED_BEFORE_FORK"
"""The variable that has the server's master use the cache while it loads the application."""

_MODULE: Final = "tests.acceptance.hosts.web"
_TIER: Final = {"CACHE_LOCAL_MAX_ENTRIES": "1000"}
_OWN_BROKER: Final = frozenset({"the host's own"})
_THREAD_POOL: Final = frozenset({"ThreadPoolExecutor-N_N"})
# gevent's, one for each greenlet that has requested its thread.
_GREENLETS: Final = frozenset({"Dummy-N"})
_PRELOADED: Final = {USED_BEFORE_FORK: "1"}
_UWSGI: Final = f"uwsgi --master --processes 2 --need-app --die-on-term --module {_MODULE}:wsgi"
_UVICORN: Final = f"uvicorn --loop uvloop --no-access-log {_MODULE}:asgi"


@dataclass(frozen=True)
class Host:
    """One way to run the application."""

    name: str
    kind: Literal["http", "program", "celery"]
    command: str
    broker: Broker
    processes: int = 1
    env: Mapping[str, str] = field(default_factory=dict)
    exit_code: int = 0
    own: frozenset[str] = frozenset()
    """What the host itself adds to its process while it answers."""
    is_long: bool = False
    """Whether it is left to `make test-long`, since the same host is tried with the other broker."""


def _gunicorn(name: str, options: str, broker: Broker, **fields: Any) -> Host:
    return Host(f"gunicorn {name}", "http", f"gunicorn --workers 2 {options} {_MODULE}:wsgi", broker, 2, **fields)


def _django(order: str, broker: Broker) -> Host:
    env = {"DJANGO_SETTINGS_MODULE": "tests.acceptance.hosts.django_settings", CELERY_APP: order}
    return Host(f"django celery {order}", "http", "gunicorn tests.acceptance.hosts.django_site:wsgi", broker, env=env)


HOSTS: Final = (
    _gunicorn("sync", "", "redis"),
    _django("first", "redis"),
    _django("last", "rabbitmq"),
    _gunicorn("gthread", "--threads 4", "rabbitmq", own=_THREAD_POOL),
    _gunicorn("gevent", "-k gevent", "redis", own=_GREENLETS, is_long=True),
    _gunicorn("gevent", "-k gevent", "rabbitmq", own=_GREENLETS),
    _gunicorn("preload", "--preload", "redis", env=_PRELOADED),
    _gunicorn("preload", "--preload", "rabbitmq", env=_PRELOADED, is_long=True),
    Host("uwsgi", "http", _UWSGI, "redis", 2, _PRELOADED, is_long=True),
    Host("uwsgi", "http", _UWSGI, "rabbitmq", 2, _PRELOADED),
    Host("uwsgi threads", "http", f"{_UWSGI} --enable-threads", "redis", 2, _PRELOADED),
    Host("uwsgi threads", "http", f"{_UWSGI} --enable-threads", "rabbitmq", 2, _PRELOADED, is_long=True),
    Host("uvicorn", "http", _UVICORN, "redis", exit_code=-15),
    Host("uvicorn workers", "http", f"{_UVICORN} --workers 4", "rabbitmq", 4, env=_TIER),
    Host("celery worker", "celery", "-P prefork -c 1", "redis", own=_OWN_BROKER),
    Host("celery worker", "celery", "-P threads -c 1", "rabbitmq", own=_OWN_BROKER),
    Host("multiprocessing fork", "program", "processes fork", "redis", 4, is_long=True),
    Host("multiprocessing fork", "program", "processes fork", "rabbitmq", 4),
    Host("multiprocessing spawn", "program", "processes spawn", "redis", 4),
    Host("multiprocessing forkserver", "program", "processes forkserver", "rabbitmq", 4),
    Host("threads that end", "program", "threads", "redis", env=_TIER),
    Host("event loops", "program", "loops", "rabbitmq"),
)
