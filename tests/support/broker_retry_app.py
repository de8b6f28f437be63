"""The app of a worker that retries only by messages, never in place: monitors show each retry as one."""

from __future__ import annotations

from refresher import make_app
from refresher.flow import refresh

refresh.MAX_PAUSE_IN_PLACE_SECONDS = 0.0

app = make_app()
