"""Check of Flower, and its address."""

from __future__ import annotations

import http.client
import re
from collections.abc import Iterator
from http import HTTPStatus
from typing import Final
from urllib.parse import SplitResult, urlsplit

from refresher.ops.doctor.deployment import Deployment
from refresher.ops.doctor.findings import Finding, ok, warning
from refresher.ops.http import get

_ONLINE: Final = re.compile(rb"^flower_worker_online\{.*\} 1\.0$", re.MULTILINE)


def flower(deployment: Deployment) -> Iterator[Finding]:
    """Query Flower's health and the workers that it takes to be online. Nothing needs Flower: never a problem.

    Flower forgets a worker after an hour; whether one is there now, the check ``workers`` reports.
    """
    if not deployment.flower_url:
        return
    where = flower_address(deployment.flower_url)
    shown = f"{where.scheme}://{where.netloc}{where.path}"
    try:
        _fetch(where, "/healthcheck")
        workers = len(_ONLINE.findall(_fetch(where, "/metrics")))
    except (OSError, http.client.HTTPException) as error:
        yield warning(
            f"no Flower at {shown}: {str(error) or type(error).__name__}",
            "start it, or read its log; refreshes continue without it",
        )
        return
    if workers:
        yield ok(f"reachable at {shown}, {workers} workers online")
    else:
        variable = deployment.worker.variable_of("broker_url")
        yield warning(
            f"reachable at {shown}, but reports no workers",
            f"is a worker running, and does Flower have the same {variable}, with a user that may listen?",
        )


def flower_address(url: str) -> SplitResult:
    """Return the parts of Flower's URL.

    Raises:
        ValueError: not an http or https URL, or one with a password, which the queried pages don't need.
    """
    allowed = "expected http://HOST:PORT, without a password: none is needed"
    try:
        parts = urlsplit(url)
        is_good = parts.scheme in {"http", "https"} and parts.hostname and parts.port != 0 and not parts.username
    except ValueError:
        raise ValueError(allowed) from None
    if not is_good or parts.query:
        raise ValueError(allowed)
    return parts._replace(path=parts.path.rstrip("/"))


def _fetch(where: SplitResult, path: str) -> bytes:
    over_tls = where.scheme == "https"
    port = where.port or (http.client.HTTPS_PORT if over_tls else http.client.HTTP_PORT)
    status, body = get(where.hostname or "", port, where.path + path, over_tls=over_tls)
    if status != HTTPStatus.OK:
        raise ConnectionError(
            f"{path} replied {status}: use Flower's own address, not that of a proxy, which should block /metrics"
        )
    return body
