"""Releases beside this one: the last tagged one, and two that do not exist yet, made of this tree.

``minor`` adds what an earlier release has to ignore: extension fields and flags in entries, keys in messages, an
unknown reason, a field in lease records, a word in notifications. ``major`` breaks both formats in the way that
docs/how-to/upgrade.md requires: it reads both versions, its readers send messages of version 2 into queues of their
own, and its workers answer each message with an entry of that version.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from tests.support.installations import ROOT, WHAT_BUILDS, Installation, built, copied, installed, unpack

NOW: Final = "now"
"""This tree."""

# Code that is appended to modules: the last definition counts, and later imports get that one.
_APPENDED: Final[Mapping[str, Mapping[str, str]]] = {
    "minor": {
        "protocol/entry": """
_encode_before = encode


def encode(header, digest, payload):
    raw = _encode_before(header, digest, b"")
    field = _EXTENSION.pack(200, 40) + b"of a later release".ljust(40)
    length = (len(raw) + len(field)).to_bytes(2, "big")
    return raw[:4] + bytes((raw[4] | 4,)) + raw[5:6] + length + raw[8:] + field + payload
""",
        "protocol/messages": """
_encode_before = encode


def encode(items):
    message = _encode_before(items)
    for item in message["items"]:
        item |= {"urgency": 5, "hints": {"a": [1]}}
        item["reason"] = "foreseen" if item["reason"] == "stale" else item["reason"]
    return {"sent_by": "a later release", **message}
""",
    },
    "major": {
        "protocol/entry": """
import threading

spoken = threading.local()
_encode_before, _decode_before = encode, decode_header


def encode(header, digest, payload):
    raw = _encode_before(header, digest, payload)
    return raw[:2] + bytes((getattr(spoken, "version", 1),)) + raw[3:]


def decode_header(raw, digest):
    return _decode_before(raw[:2] + b"\\1" + raw[3:] if raw[:3] == MAGIC + b"\\2" else raw, digest)
""",
        "protocol/messages": """
from api_client.protocol import entry as _entry

_encode_before, _decode_before = encode, decode


def encode(items):
    return {**_encode_before(items), "v": getattr(_entry.spoken, "version", 2)}


def decode(message):
    if isinstance(message, Mapping) and message.get("v") in (1, 2):
        _entry.spoken.version = message["v"]
        message = {**message, "v": 1}
    return _decode_before(message)
""",
        "config/broker": """
_consumer_before, _for_before, _of_before = consumer_settings, queue_for, queue_of


def consumer_settings(namespace, broker_url, **options):
    settings = _consumer_before(namespace, broker_url, **options)
    return settings | {"task_queues": [*settings["task_queues"], *queues(namespace + ".2", broker_url)]}


def queue_for(namespace, broker_url, **options):
    return _for_before(namespace + ".2", broker_url, **options)


def queue_of(namespace, broker_url, routing_key):
    return _of_before(namespace + ".2" * (".2.refresh" in routing_key), broker_url, routing_key)
""",
    },
}
MADE_UP: Final = tuple(_APPENDED)


def last_tag() -> str | None:
    """Return the last release's tag, if there is any, and a git to find it."""
    if shutil.which("git") is None:
        return None
    result = subprocess.run(
        ["git", "describe", "--tags", "--abbrev=0", "--match", "v*"],  # noqa: S607
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    return result.stdout.strip() or None


def install_release(name: str, folder: Path) -> Installation:
    """Build and install a release: `NOW`, one of `MADE_UP`, or a tag."""
    tree = folder / "tree"
    if name == NOW or name in MADE_UP:
        copied(ROOT, WHAT_BUILDS, tree)
        _change(tree, name)
    else:
        archive = folder / "tree.tar"
        subprocess.run(["git", "archive", "--output", archive, name], cwd=ROOT, check=True)  # noqa: S607
        unpack(archive, tree)
    return installed(built(tree, folder / "dist", "wheel"), folder / "venv")


def _change(tree: Path, name: str) -> None:
    for module, code in _APPENDED.get(name, {}).items():
        with (tree / "api_client" / f"{module}.py").open("a", encoding="utf-8") as file:
            file.write(code)
    if name == "minor":
        lua = tree / "api_client" / "protocol" / "lua"
        _replace(lua / "claim.lua", r"('by', ARGV\[\d+\])\)", r"\1, 'colour', 'blue')")
        _replace(lua / "commit.lua", "'committed'", "'committed, says a later release'")


def _replace(path: Path, pattern: str, by: str) -> None:
    text, count = re.subn(pattern, by, path.read_text(encoding="utf-8"))
    assert count == 1, f"{path.name} is not what it was: {pattern!r} stands there {count} times"
    path.write_text(text, encoding="utf-8")
