"""The workers of a background-refresh cache: queries, the refresh flow, and the Celery app that runs it.

Policy belongs here. The reader's part is `api_client`, which imports nothing from this package.

```python
from refresher import query

@query("friends_of", ttl="5m", grace="1h")
def friends_of(tx, person_id: int) -> list[dict]:
    return tx.run("MATCH (:Person {id: $id})-[:KNOWS]-(f) RETURN f.name AS name", id=person_id).data()
```
"""

from __future__ import annotations

import sys
from importlib.util import find_spec
from types import ModuleType
from typing import TYPE_CHECKING, Any

try:
    from api_client._version import __version__
except ImportError as _error:
    # Many projects have a folder with this name, and Celery puts the working directory before the installed packages.
    _hiding = find_spec("api_client")
    if _hiding is None:
        raise
    raise ImportError(
        f"api_client is {_hiding.origin}, and not the package of that name which refresher was installed with: "
        "rename that one, or start from another directory"
    ) from _error
from api_client.config.spelling import names_keywords
from refresher.errors import RefresherError, TransientFailure
from refresher.first_process import end_on_sigterm
from refresher.flow.ports import WorkerEvents
from refresher.queries import query
from refresher.results import UNCHANGED, Previous, Result
from refresher.settings import RefreshMode, WorkerSettings

if TYPE_CHECKING:
    from celery import Celery

__all__ = [
    "UNCHANGED",
    "Previous",
    "RefreshMode",
    "RefresherError",
    "Result",
    "TransientFailure",
    "WorkerEvents",
    "WorkerSettings",
    "__version__",
    "install",
    "make_app",
    "query",
]


@names_keywords(WorkerSettings)
def make_app(settings: WorkerSettings | None = None, *, events: WorkerEvents | None = None) -> Celery:
    """Return a Celery app that refreshes; see `refresher.worker.app.make_app`."""
    return _worker_part().make_app(settings, events=events)


@names_keywords(WorkerSettings)
def install(app: Celery, settings: WorkerSettings | None = None, *, events: WorkerEvents | None = None) -> None:
    """Add the refresh task and its queues to an application's own Celery app, once that is configured.

    The app's settings for its tasks and its broker stay as they are, since the refresh task has its own options. Two
    settings nevertheless apply to the whole app:

    - ``task_queues`` gets the two queues of refreshes, after those that the app already consumes. A worker with ``-Q``
      has to name them.
    - ``worker_consumer``, unless the app has its own, becomes one that survives the loss of the broker, and malformed
      messages to the refresh task. It leaves the messages of other tasks to Celery.

    The app consumes from its own broker, which has to be the same as CACHE_BROKER_URL, where readers and refreshes
    publish. It has to accept JSON, as it does by default. An ``amqps://`` URL may name a private CA, as a reader's may.

    Args:
        app: the app, already configured, since a later configuration would drop the queues.
        settings: default: from the environment.
        events: your own hooks, in addition to metrics and traces.

    Raises:
        ConfigurationError: a setting is wrong, or a module of REFRESHER_QUERIES can't be imported.
        ImportError: the extra ``worker`` is not installed.
    """
    _worker_part().install(app, settings, events=events)


def _worker_part() -> ModuleType:
    """Return the module that needs the extra ``worker``."""
    try:
        from refresher.worker import app as worker_app
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if missing in {"refresher", "api_client"}:
            raise
        raise ImportError(
            f"there is no module {missing}: pip install 'refresher[worker]'. An application that only reads has no "
            "need of it: call refresher.install and make_app in a module that only workers import"
        ) from error
    return worker_app


def __getattr__(name: str) -> Any:
    # `celery -A refresher` looks for `app`, which is made then, so that importing the package reads no environment.
    if name == "app":
        if "celery.bin.celery" in sys.modules:  # a Celery command is starting, not an application's own process
            end_on_sigterm()
        globals()["app"] = app = _worker_part().app_of_command_line()
        return app
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
