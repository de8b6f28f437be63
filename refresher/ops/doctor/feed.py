"""Check of the graph's change feed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from api_client.errors import ConfigurationError
from api_client.explain import duration
from refresher.errors import RefresherError
from refresher.feed.cdc import is_source
from refresher.feed.run import opened_triggers
from refresher.feed.watches import watches
from refresher.ops.doctor.deployment import Deployment
from refresher.ops.doctor.findings import Finding, ok, problem, warning

WAITS_SECONDS: Final = 10.0


def feed(deployment: Deployment) -> Iterator[Finding]:
    """Check that the trigger is installed as it should be, and that somebody consumes; nothing without CACHE_FEED."""
    if not deployment.worker.feed:
        return
    try:
        with opened_triggers(deployment.worker) as triggers:
            if is_source(triggers, watches):
                yield ok("the database captures changes itself (CDC)")
                return
            triggers.check(watches)
            backlog = triggers.backlog()
    except (ConfigurationError, RefresherError) as error:
        yield problem(str(error), "writes to the graph invalidate nothing meanwhile")
        return
    waiting = "1 transaction waits" if backlog.notes == 1 else f"{backlog.notes:,} transactions wait"
    if backlog.oldest_seconds > WAITS_SECONDS:
        yield warning(
            f"{waiting}, the oldest of {duration(backlog.oldest_seconds)} ago",
            "nobody consumes them: does a worker run with CACHE_FEED=true? Its log says why it can't",
        )
    else:
        yield ok("the trigger is installed, and nothing waits for long")
