"""Malformed messages that our publishers never send, as kombu's Redis transport and RabbitMQ carry them."""

from __future__ import annotations

import base64
import json
import pickle
import uuid
import zlib
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

from api_client.protocol import messages

SECRET = "canary-1d0f77aa"
QUEUE = "cache.refresh-miss"
FORGED = "\n[2026-11-22 10:00:00,000: ERROR/MainProcess] forged"
"""A text that would look like a separate record in a log."""
NOTHING_TO_DO: dict[str, Any] = {"v": 1, "items": [], "note": SECRET}
Envelope = dict[str, Any]


def packed(body: object) -> str:
    return base64.b64encode(body if isinstance(body, bytes) else json.dumps(body).encode()).decode()


def envelope(*, body: object = None, headers: dict[str, Any] | None = None, **changes: Any) -> Envelope:
    """Return a refresh from Celery as kombu's Redis transport carries it, with ``headers`` and ``changes`` over it."""
    embed = {"callbacks": None, "errbacks": None, "chain": None, "chord": None}
    task_id = uuid.uuid4().hex
    return {
        "body": packed([[NOTHING_TO_DO], {}, embed] if body is None else body),
        "content-encoding": "utf-8",
        "content-type": "application/json",
        "headers": {
            "lang": "py", "task": messages.TASK_NAME, "id": task_id, "root_id": task_id, "parent_id": None,
            "group": None, "shadow": "refresh q", "eta": None, "expires": None, "retries": 0,
            "timelimit": [None, None], "argsrepr": "", "kwargsrepr": "{}", "origin": "test", "ignore_result": True,
        } | (headers or {}),
        "properties": {
            "correlation_id": task_id, "reply_to": "", "delivery_mode": 2, "priority": 0, "body_encoding": "base64",
            "delivery_tag": uuid.uuid4().hex, "delivery_info": {"exchange": QUEUE, "routing_key": QUEUE},
        },
    } | changes  # fmt: skip


def without(name: str) -> Envelope:
    message = envelope()
    del message["headers"][name]
    return message


def embedded(name: str, value: object) -> Envelope:
    return envelope(body=[[NOTHING_TO_DO], {}, {name: value}])


def in_days(days: int) -> str:
    return (datetime.now(UTC) + timedelta(days=days)).isoformat()


NEXT = {"task": "celery.backend_cleanup", "args": [], "kwargs": {}, "options": {}, "subtask_type": None}
POISON: dict[str, tuple[str, Callable[[], Envelope]]] = {
    "body null": ("body", lambda: envelope(body=b"null")),
    "body short": ("body", lambda: envelope(body=[[NOTHING_TO_DO], {}])),
    "body empty": ("body", lambda: envelope(body=b"")),
    "body no JSON": ("undecodable", lambda: envelope(body=f"{{{SECRET}".encode())),
    "body no UTF-8": ("undecodable", lambda: envelope(body=b"\xff\xfe\x00")),
    "body deep": ("undecodable", lambda: envelope(body=b"[" * 100_000)),
    "body of a number too long": ("undecodable", lambda: envelope(body=b"[[" + b"9" * 10_000 + b"],{},{}]")),
    "args missing": ("arguments", lambda: envelope(body=[[], {}, {}])),
    "kwargs": ("arguments", lambda: envelope(body=[[NOTHING_TO_DO], {"password": SECRET}, {}])),
    "embed null": ("callbacks", lambda: envelope(body=[[NOTHING_TO_DO], {}, None])),
    "callbacks": ("callbacks", lambda: embedded("callbacks", [NEXT])),
    "chord": ("callbacks", lambda: embedded("chord", NEXT)),
    "no task": ("no_task", lambda: without("task")),
    "task unknown": ("other_task", lambda: envelope(headers={"task": "no.such.task"})),
    "task of Celery": ("other_task", lambda: envelope(headers={"task": "celery.map"})),
    "task null": ("no_task", lambda: envelope(headers={"task": None})),
    "no id": ("no_id", lambda: without("id")),
    "id of two lines": ("headers", lambda: envelope(headers={"id": f"x{FORGED}"})),
    "task of two lines": ("other_task", lambda: envelope(headers={"task": f"x{FORGED}"})),
    "id huge": ("no_id", lambda: envelope(headers={"id": "x" * 100_000})),
    "headers null": ("no_task", lambda: envelope() | {"headers": None}),
    "headers a list": ("no_envelope", lambda: envelope() | {"headers": ["task"]}),
    "headers text": ("no_envelope", lambda: envelope() | {"headers": "task"}),
    "timelimit text": ("headers", lambda: envelope(headers={"timelimit": "soon"})),
    "timelimit negative": ("headers", lambda: envelope(headers={"timelimit": [-1, -1]})),
    "eta garbage": ("headers", lambda: envelope(headers={"eta": "tomorrow"})),
    "eta a number": ("headers", lambda: envelope(headers={"eta": 1e400})),
    "eta far": ("headers", lambda: envelope(headers={"eta": in_days(3650)})),
    "eta beyond all": ("headers", lambda: envelope(headers={"eta": "9999-12-31T23:59:59-23:59"})),
    "expires garbage": ("headers", lambda: envelope(headers={"expires": {"a": 1}})),
    "retries text": ("headers", lambda: envelope(headers={"retries": "many"})),
    "root_id a mapping": ("headers", lambda: envelope(headers={"root_id": {}})),
    "stamps text": ("headers", lambda: envelope(headers={"stamps": "x", "stamped_headers": 5})),
    "pickle": ("not_json", lambda: envelope(
        body=pickle.dumps([[NOTHING_TO_DO], {}, {}]), **{"content-type": "application/x-python-serialize"}
    )),
    "yaml": ("not_json", lambda: envelope(body=b"- []", **{"content-type": "application/x-yaml"})),
    "content type null": ("not_json", lambda: envelope(**{"content-type": None})),
    "encoding unknown": ("not_json", lambda: envelope(**{"content-encoding": "utf-99"})),
    "compressed": (
        "undecodable",
        lambda: envelope(body=zlib.compress(b"{}"), headers={"compression": "application/x-gzip"}),
    ),
    "compression unknown": ("undecodable", lambda: envelope(headers={"compression": "application/x-none"})),
}  # fmt: skip
# Texts that the transport itself can't read: there is no message to reject yet.
NO_ENVELOPE: dict[str, Callable[[], bytes]] = {
    "no JSON": lambda: b"\x00garbage " + SECRET.encode(),
    "a list": lambda: b"[]",
    "empty mapping": lambda: b"{}",
    "body a list": lambda: json.dumps(envelope() | {"body": [1]}).encode(),
    "properties null": lambda: json.dumps(envelope() | {"properties": None}).encode(),
    "delivery tag a list": lambda: json.dumps(
        envelope() | {"properties": {"delivery_tag": [], "delivery_info": {}, "body_encoding": "base64"}}
    ).encode(),
}
# Messages that AMQP can't represent, or that RabbitMQ itself refuses.
NOT_ON_RABBITMQ = {"eta a number", "headers null", "headers a list", "headers text"}


def no_text(body: bytes = b"{}") -> Envelope:
    """Return a header that RabbitMQ carries, and that its client for Python can't read."""
    return envelope(body=body, **{"content-type": b"\xff\xfe"})
