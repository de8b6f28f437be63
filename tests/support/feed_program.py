"""A consumer that writes what it has invalidated to a file before it acknowledges that: a line of JSON each time.

``python -m tests.support.feed_program FILE``; settings as of ``refresher feed run``.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from contextlib import closing
from pathlib import Path

from refresher.feed.consumer import Invalidated
from refresher.feed.errors import FeedError
from refresher.feed.run import consume, opened_triggers
from refresher.query_modules import import_queries
from refresher.settings import WorkerSettings
from refresher.worker.redis_link import RetryingLink


def main(journal: Path) -> None:
    """Consume until killed; a graph that is away when it starts is tried again, as a worker does."""
    settings = WorkerSettings.from_env()
    import_queries(settings.query_modules)
    with journal.open("ab", buffering=0) as lines, closing(RetryingLink(settings.redis_url)) as link:

        def write(done: Invalidated) -> None:
            lines.write(f"{json.dumps(done.changes.tags)}\n".encode())  # whole, or not at all

        while True:
            try:
                with opened_triggers(settings) as triggers:
                    consume(triggers, link.store, settings, threading.Event(), on_invalidated=write)
            except FeedError:
                time.sleep(0.2)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
