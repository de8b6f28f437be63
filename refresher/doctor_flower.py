"""What `refresher doctor --flower URL` finds of Flower: whether it answers, and whether it has heard of workers."""

from __future__ import annotations

import http.client
import re
from http import HTTPStatus
from typing import Final
from urllib.parse import SplitResult, urlsplit

from refresher.findings import Finding, Level
from refresher.health_asked import get

_ONLINE: Final = re.compile(rb"^flower_worker_online\{.*\} 1\.0$", re.MULTILINE)
_NO_PATH: Final = "this needs Flower's own address, not that of a proxy, which does well to block /metrics"


def flower(url: str) -> Finding:
    """Ask Flower for its health, and for the workers that it takes to be online. Nothing needs it: no problem.

    It forgets a worker after an hour: whether one is there now, the line on workers tells.

    Args:
        url: as `readable` takes it.
    """
    where = readable(url)
    shown = f"{where.scheme}://{where.netloc}{where.path}"
    try:
        _get(where, "/healthcheck")
        workers = len(_ONLINE.findall(_get(where, "/metrics")))
    except (OSError, http.client.HTTPException) as error:
        why = str(error) or type(error).__name__
        mend = "start it, or read its log; without it refreshes go on, and nobody sees them one by one"
        return Finding("flower", Level.WARNING, f"no Flower at {shown}: {why}", mend)
    if workers:
        return Finding("flower", Level.OK, f"answers at {shown}; workers that it has heard of: {workers}")
    return Finding(
        "flower", Level.WARNING, f"answers at {shown}, and has heard of no worker",
        "is a worker there, and has Flower the same CACHE_BROKER_URL, as a user who may listen?",
    )  # fmt: skip


def readable(url: str) -> SplitResult:
    """Return the parts of Flower's URL.

    Raises:
        ValueError: it is no http or https URL, or has a password, which Flower asks for neither here.
    """
    allowed = "allowed is http://HOST:PORT, without a password: what is asked there needs none"
    try:
        parts = urlsplit(url)
        is_good = parts.scheme in {"http", "https"} and parts.hostname and parts.port != 0 and not parts.username
    except ValueError:
        raise ValueError(allowed) from None
    if not is_good or parts.query:
        raise ValueError(allowed)
    return parts._replace(path=parts.path.rstrip("/"))


def _get(where: SplitResult, path: str) -> bytes:
    over_tls = where.scheme == "https"
    port = where.port or (http.client.HTTPS_PORT if over_tls else http.client.HTTP_PORT)
    status, body = get(where.hostname or "", port, where.path + path, over_tls=over_tls)
    if status != HTTPStatus.OK:
        raise ConnectionError(f"{path} is answered with {status}: {_NO_PATH}")
    return body
