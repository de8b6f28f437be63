"""Settings of the graph's user that a watch writes as."""

from __future__ import annotations

from typing import Annotated

from api_client.config.environment import Settings, env


class WatchSettings(Settings, frozen=True, kw_only=True):
    """Empty: as the worker's NEO4J_USER, who should have no right to write."""

    user: Annotated[str, env("REFRESHER_WATCH_USER")] = ""
    password: Annotated[str, env("REFRESHER_WATCH_PASSWORD", secret=True)] = ""
