"""The setting of the status page."""

from __future__ import annotations

from typing import Annotated

import msgspec

from api_client.config.environment import Settings, env


class WebSettings(Settings, frozen=True, kw_only=True):
    """The page's password; by default each start makes and prints a random one."""

    password: Annotated[
        str,
        msgspec.Meta(pattern=r"\A(?:.{12,})?\Z", description="12 characters or more, or none"),
        env("REFRESHER_STATUS_PASSWORD", secret=True),
    ] = ""
