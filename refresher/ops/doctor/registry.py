"""The table of doctor's checks, and the loop that runs them.

A new check is a function that takes a `Deployment` and returns or yields findings, a line in `CHECKS`, and a row in
docs/reference/checks.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from enum import Enum
from typing import Final

from redis.exceptions import RedisError

from api_client.config.settings import ReaderSettings
from refresher.ops.doctor import broker, budgets, cache, feed, keys, local_worker
from refresher.ops.doctor.deployment import Deployment
from refresher.ops.doctor.findings import Finding, forbidden, ok, unreachable
from refresher.ops.permissions import is_forbidden
from refresher.settings import WorkerSettings


class Needs(Enum):
    """The server that a check needs, with the errors that mean that it can't be used."""

    CACHE = (RedisError, OSError)
    BROKER = (Exception,)  # kombu also raises its transports' errors
    NOTHING = ()


@dataclass(frozen=True, slots=True)
class Check:
    """One line of the table.

    ``is_readers``: it also runs with ``--as-reader``. ``needs_operator``: a reader's user by design lacks a permission
    for it. ``connects``: its first command needs only the permissions of any use of the server, so that a refusal means
    that the server can't be used.
    """

    name: str
    needs: Needs
    run: Callable[[Deployment], Finding | Iterable[Finding]]
    is_readers: bool = True
    needs_operator: bool = False
    connects: bool = False

    def findings(self, deployment: Deployment) -> Iterator[Finding]:
        """Run the check; its server's errors pass through."""
        found = self.run(deployment)
        for finding in [found] if isinstance(found, Finding) else found:
            yield replace(finding, check=self.name)


CHECKS: Final = (
    Check("settings", Needs.NOTHING, local_worker.settings),
    Check("rights", Needs.CACHE, cache.permissions, connects=True),
    Check("cache", Needs.CACHE, cache.server, needs_operator=True),
    Check("replicas", Needs.CACHE, cache.replicas, needs_operator=True),
    Check("eviction", Needs.CACHE, cache.eviction, needs_operator=True),
    Check("clock", Needs.CACHE, cache.clock),
    Check("notifications", Needs.CACHE, cache.notifications, needs_operator=True),
    Check("lease steps", Needs.CACHE, cache.lease_steps),
    Check("readers", Needs.CACHE, keys.readers, is_readers=False),
    Check("entries", Needs.CACHE, keys.entries, is_readers=False),
    Check("refreshes", Needs.CACHE, keys.refreshes, is_readers=False),
    Check("tags", Needs.CACHE, keys.tags, is_readers=False),
    Check("dead letters", Needs.CACHE, keys.dead_letters, is_readers=False),
    Check("broker's keys", Needs.BROKER, broker.replaced_keys, needs_operator=True),
    Check("broker", Needs.BROKER, broker.lengths, connects=True),
    Check("broker's memory", Needs.BROKER, broker.memory, needs_operator=True),
    Check("workers", Needs.BROKER, broker.workers, needs_operator=True),
    Check("worker here", Needs.NOTHING, local_worker.health, is_readers=False),
    Check("metrics here", Needs.NOTHING, local_worker.metrics, is_readers=False),
    Check("queries", Needs.NOTHING, local_worker.queries, is_readers=False),
    Check("budgets", Needs.CACHE, budgets.budgets, is_readers=False),  # of the imported queries
    Check("graph", Needs.NOTHING, local_worker.graph, is_readers=False),
    Check("feed", Needs.CACHE, feed.feed, is_readers=False),
)


def findings(worker: WorkerSettings, reader: ReaderSettings, *, as_reader: bool = False) -> Iterator[Finding]:
    """Run all checks, one after another, and yield their findings.

    Args:
        worker, reader: the settings.
        as_reader: True to leave out what does not concern a reader (others' keys, queries, graph, this host's worker),
            and to accept the permissions that its users lack by design.
    """
    with Deployment(worker, reader, as_reader=as_reader) as deployment:
        yield from run_checks(deployment, [check for check in CHECKS if check.is_readers or not as_reader])


def run_checks(deployment: Deployment, checks: Iterable[Check]) -> Iterator[Finding]:
    """Run checks in order, without those that need an unusable server."""
    unusable: set[Needs] = set()
    hidden: list[str] = []
    for check in checks:
        if check.needs in unusable:
            continue
        try:
            yield from check.findings(deployment)
        except check.needs.value as error:
            if check.connects or not is_forbidden(error):
                unusable.add(check.needs)
                yield from _unusable(check.needs, deployment, error)
            elif deployment.as_reader and check.needs_operator:
                hidden.append(check.name)
            else:
                yield replace(forbidden(error), check=check.name)
    if hidden:
        yield replace(ok(f"not visible to this user, as expected: {', '.join(hidden)}"), check="skipped")


def _unusable(needs: Needs, deployment: Deployment, error: Exception) -> Iterator[Finding]:
    if needs is Needs.CACHE:
        yield replace(unreachable("CACHE_REDIS_URL", deployment.worker.redis_url, error), check="cache")
    elif not deployment.replaced_keys:  # otherwise these are the reason, and reported
        yield replace(broker.unusable(deployment, error), check="broker")
