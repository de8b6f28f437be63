"""The message of the refresh task: ``{"v": 1, "items": [{…}]}``, JSON, unknown keys ignored.

Nothing in it is executed or interpolated: a query is named, and its params are values. The params travel as one JSON
text, because kombu's JSON revives some dicts (``__type__``, ``__value__``) wherever it finds them, but not within a
text. So any params reach the worker unchanged.

`trigger.broker` sets Celery's headers around it, and the worker's `message_guard` checks them.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Annotated, Any, Final

import msgspec

from api_client.errors import InvalidQuery
from api_client.protocol.entry import MAX_TOKEN
from api_client.protocol.keys import CacheKey, make_key
from api_client.protocol.params import MAX_PARAMS_BYTES

log: Final = logging.getLogger(__name__)

MESSAGE_VERSION: Final = 1
TASK_NAME: Final = "refresher.refresh"
# An item with the largest params takes 0.1 MB if JSON escapes each character twice.
MAX_MESSAGE_BYTES: Final = 1_048_576
MAX_ITEMS: Final = 1_000
MAX_BATCH: Final = 100
"""Maximum number of items of one query in a reader's message, and so in one call of a batch loader."""
MAX_TICKET: Final = 64
MAX_SHOWN_ITEMS: Final = 3


class RefreshReason(StrEnum):
    """Reason for a refresh."""

    EARLY = "early"
    STALE = "stale"
    MISS = "miss"
    INVALIDATED = "invalidated"
    MANUAL = "manual"


_REASONS: Final = frozenset(reason.value for reason in RefreshReason)
_TRACE: Final = {
    "traceparent": re.compile(r"[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}"),
    "tracestate": re.compile(r"[ -~]{1,512}"),
}


class RefreshItem(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """One refresh to do. It caches its key (see `key`), which is not part of the message.

    ``params`` is the params' JSON text, canonical if a reader wrote it. ``claim_number`` is the number of the claim; an
    acquire that finds a newer entry has nothing to do. ``ticket`` and ``attempt`` (1 is the first) belong to a retry.
    ``cache_attempt`` counts how often this attempt was sent again because Redis was unavailable, ``passes`` how often
    because the worker's release could not load it. ``trace`` is the trace of the read that triggered the refresh (W3C
    Trace Context: traceparent, tracestate); an item that is sent again keeps it.
    """

    query: str
    version: int = 1
    params: str = "{}"
    claim_number: Annotated[int, msgspec.Meta(ge=0, lt=MAX_TOKEN)] = 0
    reason: RefreshReason = RefreshReason.MANUAL
    ticket: Annotated[str, msgspec.Meta(max_length=MAX_TICKET)] = ""
    attempt: Annotated[int, msgspec.Meta(ge=1)] = 1
    cache_attempt: Annotated[int, msgspec.Meta(ge=0)] = 0
    passes: Annotated[int, msgspec.Meta(ge=0)] = 0
    trace: Mapping[str, str] | msgspec.UnsetType = msgspec.UNSET

    @property
    def decoded_params(self) -> dict[str, Any]:
        """Return the params as a dict.

        Raises:
            InvalidQuery: the text is not a JSON object, or too long.
        """
        if len(self.params) > MAX_PARAMS_BYTES:
            raise InvalidQuery(f"params of {len(self.params)} characters", query=self.query)
        try:
            decoded = json.loads(self.params)
        except (ValueError, RecursionError):
            # Not chained, because the decoder's error shows the text.
            raise InvalidQuery("params are not JSON", query=self.query) from None
        if not isinstance(decoded, dict):
            raise InvalidQuery("params are not a JSON object", query=self.query)
        return decoded

    def key(self, namespace: str) -> CacheKey:
        """Return the key that this item refreshes, made at the first call.

        Raises:
            InvalidQuery: the name, version or params are invalid.
        """
        keys: dict[str, CacheKey] = self.__dict__
        key = keys.get(namespace)
        if key is None:
            key = keys[namespace] = make_key(namespace, self.query, self.decoded_params, self.version)
        return key


class MalformedMessage(ValueError):
    """The message is malformed; the text names the place."""


def item_for(
    key: CacheKey,
    claim_number: int,
    reason: RefreshReason,
    trace: Mapping[str, str] | msgspec.UnsetType = msgspec.UNSET,
) -> RefreshItem:
    """Return the item that refreshes ``key``, as part of ``trace``."""
    item = RefreshItem(
        query=key.query, version=key.version, params=key.canonical_params, claim_number=claim_number, reason=reason,
        trace=trace or msgspec.UNSET,
    )  # fmt: skip
    item.__dict__[key.namespace] = key
    return item


def encode(items: Sequence[RefreshItem]) -> dict[str, Any]:
    """Return the task's one argument."""
    return {"v": MESSAGE_VERSION, "items": [msgspec.to_builtins(item) for item in items]}


def decode(message: object) -> list[RefreshItem]:
    """Decode the task's argument. An unreadable item is skipped, and its place is logged without its content.

    Raises:
        MalformedMessage: the shape is wrong, the version is later, or no item can be read.
    """
    if not isinstance(message, Mapping) or "items" not in message:
        raise MalformedMessage('expected {"v": 1, "items": […]}')
    if message.get("v") != MESSAGE_VERSION:
        raise MalformedMessage(f"version {message.get('v')!r:.60}: this release reads {MESSAGE_VERSION}")
    raw_items = message["items"]
    if not isinstance(raw_items, list | tuple):
        raise MalformedMessage("items: expected an array")
    if len(raw_items) > MAX_ITEMS:
        raise MalformedMessage(f"{len(raw_items)} items: at most {MAX_ITEMS}")
    items, faults = [], []
    for at, raw in enumerate(raw_items):
        try:
            items.append(_item(raw))
        except msgspec.ValidationError as error:
            faults.append(str(error).replace("$[0]", f"$[{at}]", 1))
        except UnicodeError:
            faults.append(f"text is not Unicode - at `$[{at}]`")
    if faults and not items:
        raise MalformedMessage(faults[0])
    if faults:
        log.error("%d of %d items were skipped; the first: %s", len(faults), len(raw_items), faults[0])
    return items


def _item(raw: object) -> RefreshItem:
    if isinstance(raw, dict) and isinstance(raw.get("reason"), str) and raw["reason"] not in _REASONS:
        # A later release's reason; only monitors use it.
        raw = {**raw, "reason": RefreshReason.MANUAL}
    if isinstance(raw, dict) and "trace" in raw:
        raw = {**raw, "trace": _checked_trace(raw["trace"])}
    # In a list, so that the error names the place even if the item is not an object.
    (item,) = msgspec.convert([raw], list[RefreshItem])
    return item


def _checked_trace(raw: object) -> dict[str, str]:
    """Return the readable part of a trace, since a refresh never fails because of its trace."""
    if not isinstance(raw, dict):
        return {}
    return {
        name: text
        for name, is_right in _TRACE.items()
        if isinstance(text := raw.get(name), str) and is_right.fullmatch(text)
    }


def shown_args(items: Sequence[RefreshItem], namespace: str) -> str:
    """Return the arguments for logs and Flower, without the params, which may be personal.

    Several items begin with their number, and only the first of many are shown: ``×64: q v1 3f2a… early, …``.
    """
    first = ", ".join(_shown(item, namespace) for item in items[:MAX_SHOWN_ITEMS])
    more = ", …" if len(items) > MAX_SHOWN_ITEMS else ""
    return f"×{len(items)}: {first}{more}" if len(items) > 1 else first


def _shown(item: RefreshItem, namespace: str) -> str:
    try:
        short = item.key(namespace).short
    except InvalidQuery:
        short = "?"
        try:
            make_key(namespace, item.query, None, item.version)
        except InvalidQuery:
            # Not written by a reader, so its fields may hold anything.
            return f"? {item.reason.value}"
    return f"{item.query} v{item.version} {short} {item.reason.value}"
