"""Settings of a watch's user in the graph."""

from __future__ import annotations

from typing import Annotated

from api_client.config.environment import Settings, env


class WatchSettings(Settings, frozen=True, kw_only=True):
    """Credentials of a watch; if empty, those of the worker's NEO4J_USER, who should not be able to write."""

    user: Annotated[str, env("REFRESHER_WATCH_USER")] = ""
    password: Annotated[str, env("REFRESHER_WATCH_PASSWORD", secret=True)] = ""
