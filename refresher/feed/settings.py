"""Settings of the feed's user in the graph."""

from __future__ import annotations

from typing import Annotated

from api_client.config.environment import Settings, env


class FeedSettings(Settings, frozen=True, kw_only=True):
    """Credentials of the feed; if empty, those of the worker's NEO4J_USER, who should not be able to write.

    Installation takes an administrator; running takes a user who may read and delete nodes with the label
    RefresherChange.
    """

    user: Annotated[str, env("REFRESHER_FEED_USER")] = ""
    password: Annotated[str, env("REFRESHER_FEED_PASSWORD", secret=True)] = ""
