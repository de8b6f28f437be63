"""Check of the graph's change feed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from api_client.errors import ConfigurationError
from api_client.explain import duration
from refresher.errors import RefresherError
from refresher.feed.cdc import is_source
from refresher.feed.run import opened_triggers
from refresher.feed.state import read_state
from refresher.feed.watches import watches
from refresher.ops.doctor.deployment import Deployment
from refresher.ops.doctor.findings import Finding, ok, problem, warning

WAITS_SECONDS: Final = 10.0


def feed(deployment: Deployment) -> Iterator[Finding]:
    """Check that the right trigger is installed and that somebody consumes; nothing without CACHE_FEED."""
    if not deployment.worker.feed:
        return
    try:
        with opened_triggers(deployment.worker) as triggers:
            has_cdc = is_source(triggers, watches)
            if not has_cdc:
                triggers.check(watches)
    except (ConfigurationError, RefresherError) as error:
        yield problem(str(error), "writes to the graph invalidate nothing meanwhile")
        return
    state = read_state(deployment.cache, deployment.worker.namespace)
    if not state or not state.consumer:
        since = f", for {duration(state.silent_for)}" if state else ""
        yield warning(
            f"nobody consumes the changes{since}",
            "does a worker run with CACHE_FEED=true? Its log says why it can't consume",
        )
    elif state.oldest > WAITS_SECONDS:
        yield warning(f"a change of {duration(state.oldest)} ago waits", "more is written than one consumer carries")
    else:
        source = "the database captures changes itself (CDC)" if has_cdc else "the trigger is installed"
        after = "" if state.p99 is None else f"; 99 % of the last changes were invalidated within {duration(state.p99)}"
        yield ok(f"{source}, and {state.consumer} consumes{after}")
