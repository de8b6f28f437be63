"""The formats that this release writes, from fixed inputs: entries, messages, dead letters, names, metrics.

``python -m tests.support.wire_formats 0.2`` writes all of them, with those of `wire_records`, into a folder of its own
in ``tests/contract/formats``, which later releases must be able to read.
"""

from __future__ import annotations

import json
import re
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
from kombu.utils.json import dumps
from msgspec.structs import replace

from api_client.config.broker import queues
from api_client.protocol import entry, messages, payload
from api_client.protocol.entry import Flag, Header, Revalidation, Smoothed, encode_revalidation, encode_tags
from api_client.protocol.keys import (
    CacheKey,
    budget_keys,
    dead_letters_key,
    feed_position_key,
    feed_state_key,
    make_key,
    pending_tags_key,
    tag_clock_key,
    tag_index_key,
    tag_member,
    tag_state_key,
    versions_key,
)
from api_client.protocol.messages import RefreshItem, RefreshReason
from api_client.protocol.payload import Packed, pack
from refresher.flow.dead_letters import DeadLetter

ROOT: Final = Path(__file__).parents[2]
FORMATS: Final = ROOT / "tests" / "contract" / "formats"
NAMESPACE: Final = "golden"
NOW_US: Final = 1_950_000_000_000_000
KEY: Final = make_key(NAMESPACE, "friends_of", {"person": "Zoë", "depth": 2, "since": [1.5, None, True]}, 3)
VALUE: Final = {"rows": [{"name": "Ann", "n": number} for number in range(12)], "total": 12, "share": 0.25}

# Numbers that the header's short floats hold exactly.
HEADER: Final = Header(
    token=NOW_US - 60_000_000, generation=0, soft_expiry_us=NOW_US + 240_000_000, nonce=b"nonce--0",
    read_started_us=NOW_US - 60_500_000, fetched_at_us=NOW_US - 60_000_000, ttl_seconds=300.5,
    delta=Smoothed(1.25, 0.5), run=Smoothed(0.75, 0.25), beta=3.5, degree=77, sigma=2.0,
)  # fmt: skip
ENTRIES: Final[Mapping[str, Mapping[str, Any]]] = {
    "plain": {},
    "compressed": {"is_compressed": True},
    "stale by its time": {"soft_expiry_us": NOW_US - 1},
    "invalidated": {"generation": NOW_US - 1_000_000, "soft_expiry_us": NOW_US - 1_000_000},
    "handoff": {"flags": int(Flag.HANDOFF), "ttl_seconds": 0.0},
    "with a cut draw": {"draw_digits": 6},
    "with bookmarks": {"bookmarks": ("FB:kcwQ1", "FB:kcwQ2")},
    "with samples of δ": {"delta_samples": (0.5, 1.5, 2.25)},
    "with tags": {"encoded_tags": encode_tags(("person:42", "ünï"))},
    "with arrays": {"has_arrays": True},
    "with a version": {"encoded_revalidation": encode_revalidation(Revalidation(["2026-11-23", 7], 60.0, None))},
    "with both, compressed": {"bookmarks": ("FB:1",), "delta_samples": (0.25,), "is_compressed": True},
}
_ITEM: Final = messages.item_for(KEY, NOW_US, RefreshReason.MISS)
ITEMS: Final[Mapping[str, Sequence[RefreshItem]]] = {
    **{str(reason.value): [replace(_ITEM, reason=reason)] for reason in RefreshReason},
    "a retry with its ticket": [replace(_ITEM, ticket="0123456789abcdef0123456789abcdef", attempt=2)],
    "a retry since Redis could not be asked": [replace(_ITEM, cache_attempt=3)],
    "part of a trace": [
        replace(_ITEM, trace={"traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"})
    ],
    "by hand, without a claim": [RefreshItem(query="top", version=1)],
    "several": [_ITEM, RefreshItem(query="top", version=1, claim_number=7)],
}
LETTERS: Final[Mapping[str, DeadLetter]] = {
    "a failure": DeadLetter(
        query=KEY.query, version=KEY.version, params=KEY.params, digest=KEY.digest.hex(), token=NOW_US, kind="syntax",
        message="Invalid input 'MATHC'", attempts=1, at_us=NOW_US + 5, failures=3,
        place="/app/queries.py:7 in friends_of",
    ),
    "of a sensitive query": DeadLetter(
        query=KEY.query, version=KEY.version, params=None, digest=KEY.digest.hex(), token=NOW_US, kind="transient",
        message=None, attempts=4, at_us=NOW_US + 5,
    ),
}  # fmt: skip


def entries() -> Any:
    """Return entries: their bytes, and their meaning."""
    made = {name: _entry(replace(HEADER, **changes)) for name, changes in ENTRIES.items()}
    return {"digest": KEY.digest.hex(), "now_us": NOW_US, "value": VALUE, "made": made}


def _entry(header: Header) -> dict[str, Any]:
    content = payload.encode(VALUE)
    packed = pack(Packed(content), len(content) if header.is_compressed else 0)
    assert packed.is_compressed == header.is_compressed
    raw = entry.encode(header, KEY.digest, packed.content)
    return {
        "bytes": raw.hex(),
        "header": meaning(entry.decode_header(raw, KEY.digest)),
        "is_stale": header.is_stale(NOW_US),
        "is_handoff": header.is_handoff,
    }


def meaning(header: Header) -> dict[str, Any]:
    """Return the header's fields in plain values."""
    decoded = [name for name in header.__struct_fields__ if not name.startswith("encoded_")]
    fields = {name: getattr(header, name) for name in (*decoded, "tags")}
    fields["revalidation"] = msgspec.to_builtins(header.revalidation)
    smoothed = {name: [value.mean, value.deviation] for name, value in fields.items() if isinstance(value, Smoothed)}
    lists = {name: list(value) for name, value in fields.items() if isinstance(value, tuple)}
    return {**fields, **smoothed, **lists, "nonce": header.nonce.decode()}


def sent() -> Any:
    """Return messages, as kombu writes them into a body, and the items that they carry."""
    return {
        name: {"text": dumps(messages.encode(items)), "items": msgspec.to_builtins(items)}
        for name, items in ITEMS.items()
    }


def letters() -> Any:
    """Return dead letters: the member of the sorted set, and its meaning."""
    return {
        name: {"member": msgspec.json.encode(letter).decode(), "letter": msgspec.to_builtins(letter), "id": letter.id}
        for name, letter in LETTERS.items()
    }


def names() -> Any:
    """Return the names of keys, channels, queues and the task."""
    return {
        "canonical_params": KEY.canonical_params,
        "digest": KEY.digest.hex(),
        "entry": KEY.entry,
        "record": KEY.record,
        "channel": KEY.channel,
        "dead_letters": dead_letters_key(NAMESPACE),
        "versions": versions_key(NAMESPACE, KEY.query),
        "budgets": [*budget_keys(NAMESPACE), *budget_keys(NAMESPACE, KEY.query)],
        "tag_clock": tag_clock_key(NAMESPACE),
        "tag_index": tag_index_key(NAMESPACE, "person:42"),
        "tag_state": tag_state_key(NAMESPACE, "person:42"),
        "tag_member": tag_member(KEY).hex(),
        "pending_tags": pending_tags_key(NAMESPACE),
        "feed_position": feed_position_key(NAMESPACE),
        "feed_state": feed_state_key(NAMESPACE),
        "task": messages.TASK_NAME,
        "queues": {url: [_queue(queue) for queue in queues(NAMESPACE, url)] for url in ("redis://h/1", "amqp://h//")},
    }


def _queue(queue: Any) -> dict[str, Any]:
    return {
        "name": queue.name,
        "exchange": [queue.exchange.name, queue.exchange.type],
        "routing_key": queue.routing_key,
        "arguments": queue.queue_arguments,
    }


def metrics() -> Any:
    """Return names of metrics with their labels, as on the page that users build dashboards by."""
    page = (ROOT / "docs" / "reference" / "metrics.md").read_text(encoding="utf-8")
    reader, worker = page.split("\n## Workers\n")
    return {"reader": _rows(reader), "worker": _rows(worker.split("\n## ")[0])}


def _rows(text: str) -> dict[str, list[str]]:
    firsts = [line.split("|")[1] for line in text.splitlines() if line.startswith("| `")]
    return {
        name: re.findall(r"`(\w+)`", labels)
        for first in firsts
        for names, _, labels in [first.partition("(")]
        for name in re.findall(r"`(\w+)`", names)
    }


WRITTEN: Final[Mapping[str, Callable[[], Any]]] = {
    "entries": entries, "messages": sent, "dead-letters": letters, "names": names,
}  # fmt: skip


def as_text(content: Any) -> str:
    """Return the text of a golden file."""
    return json.dumps(content, indent=1, ensure_ascii=False, sort_keys=True) + "\n"


def key_of(content: Mapping[str, Any]) -> CacheKey:
    """Return the key whose names a folder's ``names`` has."""
    return CacheKey(
        KEY.query, KEY.version, content["canonical_params"], bytes.fromhex(content["digest"]),
        content["entry"], content["record"], content["channel"],
    )  # fmt: skip


def main(version: str) -> None:
    """Write the folder of a release."""
    from tests.support.movable_clock import start_clocked_redis
    from tests.support.wire_records import carried, records

    folder = FORMATS / version
    folder.mkdir(parents=True)
    with tempfile.TemporaryDirectory() as made, start_clocked_redis(Path(made)) as clocked:
        contents = {name: write() for name, write in WRITTEN.items()}
        contents |= {"metrics": metrics(), "records": records(clocked), "envelope": carried(clocked.server)}
    for name, content in contents.items():
        (folder / f"{name}.json").write_text(as_text(content), encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
