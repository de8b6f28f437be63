"""Upkeep of tags: stalled invalidations are finished, and expired members and states removed."""

from __future__ import annotations

import logging
from typing import Final, cast

from api_client.protocol import tags
from api_client.protocol.keys import tag_pair_of, tag_pattern
from api_client.protocol.tags import TagWalk
from api_client.transport.redis_py import nodes_of
from api_client.transport.scripts import drive
from refresher.settings import WorkerSettings
from refresher.worker.redis_link import RetryingLink

log: Final = logging.getLogger(__name__)

UPKEEP_SECONDS: Final = 5.0
SCAN_COUNT: Final = 500
SCANS_PER_NODE: Final = 10
SWEPT_AT_ONCE: Final = 500


class TagUpkeep:
    """Finishes invalidations and sweeps indexes, in a part of Redis' keys each time.

    Indexes and states have no expiry, so that an eviction of expiring keys spares them.
    """

    def __init__(self, settings: WorkerSettings) -> None:
        self._namespace, self._retention_seconds = settings.namespace, settings.record_retention_seconds
        self._cursors: dict[int, int] = {}

    def __call__(self, link: RetryingLink) -> None:
        """Finish pending invalidations and sweep.

        Raises:
            CacheUnavailable: Redis did not answer.
            redis.exceptions.RedisError: it did not answer SCAN.
        """
        try:
            self.finish_pending(link)
        finally:
            self.sweep(link)  # in a full Redis it frees the memory that the rest lacks

    def finish_pending(self, link: RetryingLink) -> None:
        """Finish the invalidations of tags that have made no progress for some seconds."""
        while kept := link.store.run(tags.take(self._namespace)):
            walk = TagWalk(self._namespace, retention_seconds=self._retention_seconds)
            entries = drive(walk.resume(kept), link.store.run_all)
            log.info("finished an invalidation of tags that was pending: %d entries", entries)

    def sweep(self, link: RetryingLink) -> None:
        """Continue the scan of each node's keys, and sweep the tags that it finds."""
        for place, node in enumerate(nodes_of(link.client)):
            for _ in range(SCANS_PER_NODE):
                cursor, names = node.scan(
                    self._cursors.get(place, 0), match=tag_pattern(self._namespace), count=SCAN_COUNT
                )
                self._cursors[place] = int(cursor)
                for pair in {tag_pair_of(name.decode()) for name in cast("list[bytes]", names)}:
                    while link.store.run(tags.sweep(*pair, limit=SWEPT_AT_ONCE)) == SWEPT_AT_ONCE:
                        pass
                if not cursor:
                    break
