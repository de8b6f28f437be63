"""Any message at all: the worker drops it, says so in a line without its body, and goes on refreshing."""

from __future__ import annotations

import base64
import json
import pickle
import uuid
import zlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from typing import Any

import psutil
import pytest

from api_client import messages
from refresher.embedded import ArcadeDbServer, GuardedProcess, RedisServer
from tests.acceptance.conftest import System
from tests.support.waiting import eventually

SECRET = "canary-1d0f77aa"
QUEUE = "cache.refresh-miss"
NOTHING_TO_DO: dict[str, Any] = {"v": 1, "items": [], "note": SECRET}
Envelope = dict[str, Any]


@pytest.fixture(scope="module")
def running(
    redis_server: RedisServer, arcadedb: ArcadeDbServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[System, GuardedProcess]]:
    """One worker for all of them: what one breaks, the next one finds."""
    with ExitStack() as stack:
        server = stack.enter_context(RedisServer.start())
        system = System(stack, server, redis_server, arcadedb, tmp_path_factory.mktemp("poison"))
        yield system, system.start_worker("-c", "1")


def packed(body: object) -> str:
    return base64.b64encode(body if isinstance(body, bytes) else json.dumps(body).encode()).decode()


def envelope(*, body: object = None, headers: dict[str, Any] | None = None, **changes: Any) -> Envelope:
    """What kombu's Redis transport makes of a refresh that Celery publishes; ``headers`` and ``changes`` over it."""
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
POISON: dict[str, Callable[[], Envelope]] = {
    "body null": lambda: envelope(body=b"null"),
    "body short": lambda: envelope(body=[[NOTHING_TO_DO], {}]),
    "body long": lambda: envelope(body=[[NOTHING_TO_DO], {}, {}, {}]),
    "body a number": lambda: envelope(body=b"5"),
    "body a mapping": lambda: envelope(body={"args": [NOTHING_TO_DO]}),
    "body empty": lambda: envelope(body=b""),
    "body no JSON": lambda: envelope(body=f"{{{SECRET}".encode()),
    "body no UTF-8": lambda: envelope(body=b"\xff\xfe\x00"),
    "body deep": lambda: envelope(body=b"[" * 100_000),
    "body of a number too long": lambda: envelope(body=b"[[" + b"9" * 10_000 + b"],{},{}]"),
    "args no list": lambda: envelope(body=[NOTHING_TO_DO, {}, {}]),
    "args missing": lambda: envelope(body=[[], {}, {}]),
    "kwargs": lambda: envelope(body=[[NOTHING_TO_DO], {"password": SECRET}, {}]),
    "kwargs no mapping": lambda: envelope(body=[[NOTHING_TO_DO], [], {}]),
    "embed null": lambda: envelope(body=[[NOTHING_TO_DO], {}, None]),
    "callbacks": lambda: embedded("callbacks", [NEXT]),
    "errbacks": lambda: embedded("errbacks", [NEXT]),
    "chain": lambda: embedded("chain", [NEXT]),
    "chord": lambda: embedded("chord", NEXT),
    "no task": lambda: without("task"),
    "task unknown": lambda: envelope(headers={"task": "no.such.task"}),
    "task of Celery": lambda: envelope(headers={"task": "celery.map"}),
    "task a list": lambda: envelope(headers={"task": []}),
    "task null": lambda: envelope(headers={"task": None}),
    "no id": lambda: without("id"),
    "id a number": lambda: envelope(headers={"id": 5}),
    "id a list": lambda: envelope(headers={"id": ["x"]}),
    "id huge": lambda: envelope(headers={"id": "x" * 100_000}),
    "headers null": lambda: envelope() | {"headers": None},
    "headers a list": lambda: envelope() | {"headers": ["task"]},
    "headers text": lambda: envelope() | {"headers": "task"},
    "timelimit text": lambda: envelope(headers={"timelimit": "soon"}),
    "timelimit short": lambda: envelope(headers={"timelimit": [1]}),
    "timelimit of text": lambda: envelope(headers={"timelimit": ["a", "b"]}),
    "timelimit negative": lambda: envelope(headers={"timelimit": [-1, -1]}),
    "eta garbage": lambda: envelope(headers={"eta": "tomorrow"}),
    "eta a number": lambda: envelope(headers={"eta": 1e400}),
    "eta far": lambda: envelope(headers={"eta": in_days(3650)}),
    "eta beyond all": lambda: envelope(headers={"eta": "9999-12-31T23:59:59-23:59"}),
    "expires garbage": lambda: envelope(headers={"expires": {"a": 1}}),
    "retries text": lambda: envelope(headers={"retries": "many"}),
    "argsrepr a list": lambda: envelope(headers={"argsrepr": [1]}),
    "shadow a mapping": lambda: envelope(headers={"shadow": {"a": 1}}),
    "root_id a mapping": lambda: envelope(headers={"root_id": {}}),
    "stamps text": lambda: envelope(headers={"stamps": "x", "stamped_headers": 5}),
    "pickle": lambda: envelope(
        body=pickle.dumps([[NOTHING_TO_DO], {}, {}]), **{"content-type": "application/x-python-serialize"}
    ),
    "yaml": lambda: envelope(body=b"- []", **{"content-type": "application/x-yaml"}),
    "content type null": lambda: envelope(**{"content-type": None}),
    "content type a list": lambda: envelope(**{"content-type": ["application/json"]}),
    "encoding unknown": lambda: envelope(**{"content-encoding": "utf-99"}),
    "encoding a number": lambda: envelope(**{"content-encoding": 5}),
    "compressed": lambda: envelope(body=zlib.compress(b"{}"), headers={"compression": "application/x-gzip"}),
    "compression unknown": lambda: envelope(headers={"compression": "application/x-none"}),
    "compression a list": lambda: envelope(headers={"compression": ["zlib"]}),
}  # fmt: skip
# What the transport itself can't read: there is no message to reject yet.
NO_ENVELOPE: dict[str, Callable[[], bytes]] = {
    "no JSON": lambda: b"\x00garbage " + SECRET.encode(),
    "a scalar": lambda: b"5",
    "a list": lambda: b"[]",
    "null": lambda: b"null",
    "empty mapping": lambda: b"{}",
    "no base64": lambda: json.dumps(envelope() | {"body": "ä"}).encode(),
    "body a list": lambda: json.dumps(envelope() | {"body": [1]}).encode(),
    "properties null": lambda: json.dumps(envelope() | {"properties": None}).encode(),
    "delivery tag a list": lambda: json.dumps(
        envelope() | {"properties": {"delivery_tag": [], "delivery_info": {}, "body_encoding": "base64"}}
    ).encode(),
}


def still_refreshes(system: System, worker: GuardedProcess) -> None:
    value = system.client().get("long_lived", {"key": uuid.uuid4().hex}, timeout=20)
    assert value["load"] == 1
    assert worker.poll() is None


def dropped(worker: GuardedProcess) -> int:
    return worker.log_file.read_text().count("was dropped: ")


def test_the_message_that_the_others_are_made_of_is_none_of_them(running: tuple[System, GuardedProcess]) -> None:
    system, worker = running
    before = dropped(worker)
    system.broker.lpush(QUEUE, json.dumps(envelope(headers={"expires": in_days(1), "timelimit": [30, 20.5]})))
    still_refreshes(system, worker)
    assert dropped(worker) == before


@pytest.mark.parametrize("poison", POISON)
def test_the_same_worker_goes_on_after_a_malformed_message(running: tuple[System, GuardedProcess], poison: str) -> None:
    system, worker = running
    before = dropped(worker)
    system.broker.lpush(QUEUE, json.dumps(POISON[poison]()))
    still_refreshes(system, worker)
    assert dropped(worker) == before + 1
    said = worker.log_file.read_text()
    assert SECRET not in said
    assert "Traceback" not in said
    # Gone for good: it is neither redelivered nor kept until it is due.
    eventually(lambda: not system.broker.hlen("unacked"), 10, "nothing is left unacknowledged")


@pytest.mark.parametrize("garbage", NO_ENVELOPE)
def test_the_same_worker_goes_on_after_what_is_no_envelope(
    running: tuple[System, GuardedProcess], garbage: str
) -> None:
    system, worker = running
    system.broker.lpush(QUEUE, NO_ENVELOPE[garbage]())
    still_refreshes(system, worker)
    said = worker.log_file.read_text()
    assert "Unrecoverable error" not in said
    assert SECRET not in said


def test_a_compressed_message_is_never_expanded(running: tuple[System, GuardedProcess]) -> None:
    system, worker = running
    process = psutil.Process(worker.pid)
    packer = zlib.compressobj()
    bomb = b"".join(packer.compress(bytes(1 << 20)) for _ in range(600)) + packer.flush()
    before, peaks = process.memory_info().rss, []
    system.broker.lpush(QUEUE, json.dumps(envelope(body=bomb, headers={"compression": "application/x-gzip"})))
    eventually(
        lambda: peaks.append(process.memory_info().rss) or not system.broker.llen(QUEUE), 10, "it has been taken"
    )
    still_refreshes(system, worker)
    assert max(*peaks, process.memory_info().rss) - before < 100 << 20
