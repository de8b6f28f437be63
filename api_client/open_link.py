"""Which link a URL needs."""

from __future__ import annotations

from api_client.cluster_link import ClusterLink
from api_client.link import CacheLink
from api_client.redis_url import Topology, read_url


def open_link(url: str, timeout_seconds: float, reply_seconds: float) -> CacheLink:
    """Return the sync reader's link for a URL; nothing is sent yet. Times as for `Connections`.

    Raises:
        ConfigurationError: the URL can't be used.
    """
    link = ClusterLink if read_url(url).topology is Topology.CLUSTER else CacheLink
    return link(url, timeout_seconds, reply_seconds)
