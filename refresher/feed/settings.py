"""Settings of the graph's user that the feed works as."""

from __future__ import annotations

from typing import Annotated

from api_client.config.environment import Settings, env


class FeedSettings(Settings, frozen=True, kw_only=True):
    """Empty: as the worker's NEO4J_USER, who should have no right to write.

    To install takes an administrator; to run, one who may read and delete nodes with the label RefresherChange.
    """

    user: Annotated[str, env("REFRESHER_FEED_USER")] = ""
    password: Annotated[str, env("REFRESHER_FEED_PASSWORD", secret=True)] = ""
