"""Server of the status page, with a password, a CSRF token, and no external content."""

from __future__ import annotations

import base64
import binascii
import hmac
import json
import logging
import secrets
from collections.abc import Mapping
from http import HTTPStatus
from importlib.resources import files
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit

from redis.exceptions import RedisError

from api_client.errors import CacheError
from refresher.ops.http import MinimalHTTPHandler, MinimalHTTPServer
from refresher.web.api import MAX_SHOWN, StatusApi

log: Final = logging.getLogger(__name__)

USER: Final = "refresher"
REQUEST_SECONDS: Final = 10.0
MAX_BODY_BYTES: Final = 65_536
CSRF_HEADER: Final = "X-Refresher-Token"
_TOKEN_PLACE: Final = "{{token}}"  # noqa: S105 - where the page has it
_TYPES: Final = {"page.html": "text/html", "page.css": "text/css", "page.js": "text/javascript"}
_HEADERS: Final = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src data:; frame-ancestors 'none'; base-uri 'none'; form-action 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
}


class StatusServer(MinimalHTTPServer):
    """The page's server; `serve_forever` serves.

    Args:
        where: address and port.
        api: the source of the data.
        password: the password of the single user.
    """

    def __init__(self, where: tuple[str, int], api: StatusApi, password: str) -> None:
        self.api: StatusApi = api
        self.credentials: bytes = f"{USER}:{password}".encode()
        self.token: str = secrets.token_urlsafe(24)
        folder = files("refresher.web")
        page = {name: (folder / name).read_text(encoding="utf-8") for name in _TYPES}
        page["page.html"] = page["page.html"].replace(_TOKEN_PLACE, self.token)
        self.pages: dict[str, tuple[bytes, str]] = {
            f"/{name}": (text.encode(), f"{_TYPES[name]}; charset=utf-8") for name, text in page.items()
        }
        self.pages["/"] = self.pages.pop("/page.html")
        super().__init__(where, _Handler)


class _Handler(MinimalHTTPHandler):
    server: StatusServer
    timeout = REQUEST_SECONDS

    def do_GET(self) -> None:  # noqa: N802 - the name that http.server looks for
        if not self._may_enter():
            return
        parts = urlsplit(self.path)
        if parts.path == "/status.json":
            self._answer(HTTPStatus.OK, self.server.api.status(_since(parts.query)))
        elif parts.path in self.server.pages:
            self.send(HTTPStatus.OK, *self.server.pages[parts.path], _HEADERS)
        else:
            self._refuse(HTTPStatus.NOT_FOUND, "no such page")

    def do_POST(self) -> None:  # noqa: N802 - as do_GET
        if not self._may_enter():
            return
        if not self._has_csrf_token():
            self._refuse(HTTPStatus.FORBIDDEN, "invalid CSRF token: reload the page")
        elif urlsplit(self.path).path != "/retry":
            self._refuse(HTTPStatus.NOT_FOUND, "no such page")
        elif (ids := self._ids()) is None:
            self._refuse(HTTPStatus.BAD_REQUEST, 'expected {"ids": [text, …]}')
        else:
            self._retry(ids)

    def _retry(self, ids: list[str]) -> None:
        try:
            self._answer(HTTPStatus.OK, {"results": self.server.api.retry(ids)})
        except (CacheError, RedisError, OSError) as error:
            log.warning("a retry failed: %s", type(error).__name__)
            self._refuse(HTTPStatus.SERVICE_UNAVAILABLE, "cache or broker can't be used")

    def _may_enter(self) -> bool:
        scheme, _, coded = self.headers.get("Authorization", "").partition(" ")
        try:
            given = base64.b64decode(coded, validate=True) if scheme.lower() == "basic" else b""
        except (binascii.Error, ValueError):
            given = b""
        if hmac.compare_digest(given, self.server.credentials):
            return True
        challenge = {"WWW-Authenticate": 'Basic realm="refresher", charset="UTF-8"'}
        self._answer(HTTPStatus.UNAUTHORIZED, {"error": "authentication required"}, challenge)
        return False

    def _has_csrf_token(self) -> bool:
        """Return whether the page sent the request, as only the page has the token, and a browser adds the origin."""
        origin = self.headers.get("Origin")
        given = self.headers.get(CSRF_HEADER, "").encode()
        is_same = origin is None or urlsplit(origin).netloc == self.headers.get("Host")
        return is_same and hmac.compare_digest(given, self.server.token.encode())

    def _ids(self) -> list[str] | None:
        size = self.headers.get("Content-Length", "")
        if not size.isdecimal() or int(size) > MAX_BODY_BYTES:
            return None
        try:
            body = json.loads(self.rfile.read(int(size)))
        except ValueError:
            return None
        ids = body.get("ids") if isinstance(body, dict) else None
        if not isinstance(ids, list) or not 0 < len(ids) <= MAX_SHOWN or not all(isinstance(one, str) for one in ids):
            return None
        return ids

    def _refuse(self, status: HTTPStatus, why: str) -> None:
        self._answer(status, {"error": why})

    def _answer(self, status: HTTPStatus, record: Mapping[str, Any], headers: Mapping[str, str] | None = None) -> None:
        self.send(status, json.dumps(record).encode(), "application/json", {**_HEADERS, **(headers or {})})


def _since(query: str) -> float:
    try:
        return float(parse_qs(query).get("since", ["0"])[0])
    except ValueError:
        return 0.0
