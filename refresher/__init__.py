"""The workers of a background-refresh cache: queries, the refresh flow, and the Celery app that runs it.

Policy belongs here; what a reader needs is in `api_client`, which imports nothing of this package.

```python
from refresher import query

@query("friends_of", ttl="5m", grace="1h", degree="MATCH (p:Person {id: $person_id}) RETURN COUNT { (p)--() }")
def friends_of(tx, person_id: int) -> list[dict]:
    return tx.run("MATCH (:Person {id: $id})-[:KNOWS]-(f) RETURN f.name AS name", id=person_id).data()
```
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

try:
    from api_client._version import __version__
except ImportError as _error:
    # Many projects have a folder of this name, and Celery puts the working directory before the installed packages.
    _hiding = find_spec("api_client")
    if _hiding is None:
        raise
    raise ImportError(
        f"api_client is {_hiding.origin}, and not the package of that name which refresher was installed with: "
        "rename that one, or start from another directory"
    ) from _error
from refresher.errors import RefresherError, TransientFailure
from refresher.flow.events import WorkerEvents
from refresher.queries import query
from refresher.settings import RefreshMode, WorkerSettings

if TYPE_CHECKING:
    from celery import Celery

__all__ = [
    "RefreshMode",
    "RefresherError",
    "TransientFailure",
    "WorkerEvents",
    "WorkerSettings",
    "__version__",
    "install",
    "make_app",
    "query",
]


def make_app(settings: WorkerSettings | None = None, *, events: WorkerEvents | None = None) -> Celery:
    """Return a Celery app that refreshes; see `refresher.worker.app.make_app`."""
    from refresher.worker import app as celery_app

    return celery_app.make_app(settings, events=events)


def install(app: Celery, settings: WorkerSettings | None = None, *, events: WorkerEvents | None = None) -> None:
    """Add the refresh task to an application's own Celery app; see `refresher.worker.app.install`."""
    from refresher.worker import app as celery_app

    celery_app.install(app, settings, events=events)


def __getattr__(name: str) -> Any:
    # `celery -A refresher` looks for `app`. Made at the first look, so that importing the package reads no environment.
    if name == "app":
        from refresher.worker import app as celery_app

        globals()["app"] = app = celery_app.app_of_command_line()
        return app
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
