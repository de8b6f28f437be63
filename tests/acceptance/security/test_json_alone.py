"""JSON only, in both directions: what could run code when it is loaded is refused, counted, and never loaded."""

from __future__ import annotations

import json
import os
import pickle
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from kombu import Message

from api_client import DecodeError
from api_client.protocol import messages
from api_client.protocol.entry import FIXED_HEADER_BYTES
from refresher.embedded import ArcadeDbServer, GuardedProcess, RedisServer
from refresher.flow.ports import DropReason
from refresher.worker.celery_fixes.message_guard import validate_message
from tests.acceptance.conftest import System, system_of_module
from tests.support.any_reader import KINDS
from tests.support.event_counting_app import EVENT_COUNTS
from tests.support.poison import QUEUE, envelope
from tests.support.waiting import eventually


class Bomb:
    """Makes a file when it is unpickled."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> tuple[Callable[..., object], tuple[object, ...]]:
        return os.mkdir, (str(self.marker),)


def pickled(marker: Path) -> bytes:
    return pickle.dumps([[Bomb(marker)], {}, {}])


def yaml_of(marker: Path) -> bytes:
    return f"- !!python/object/apply:os.mkdir ['{marker}']\n- {{}}\n- {{}}\n".encode()


CODE: dict[str, Callable[[Path], dict[str, Any]]] = {
    "pickle": lambda marker: envelope(body=pickled(marker), **{"content-type": "application/x-python-serialize"}),
    "pickle in binary": lambda marker: envelope(
        body=pickled(marker), **{"content-type": "application/x-python-serialize", "content-encoding": "binary"}
    ),
    "pickle that says it is JSON": lambda marker: envelope(body=pickled(marker)),
    "pickle that says nothing": lambda marker: envelope(body=pickled(marker), **{"content-type": None}),
    "yaml": lambda marker: envelope(body=yaml_of(marker), **{"content-type": "application/x-yaml"}),
    "yaml that says it is JSON": lambda marker: envelope(body=yaml_of(marker)),
}


@pytest.fixture(scope="module")
def running(
    redis_server: RedisServer, arcadedb: ArcadeDbServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[System, GuardedProcess]]:
    with system_of_module(redis_server, arcadedb, tmp_path_factory) as system:
        yield system, system.start_worker("-c", "1", app="tests.support.event_counting_app")


@pytest.mark.promise("Refreshing", "Nothing in a message or an entry is executed")
@pytest.mark.parametrize("kind", CODE)
def test_a_message_that_would_run_code_is_rejected_and_counted_and_never_loaded(
    running: tuple[System, GuardedProcess], tmp_path: Path, kind: str
) -> None:
    system, worker = running

    def dropped() -> int:
        counts = system.control.hgetall(EVENT_COUNTS)
        return sum(int(count) for word, count in counts.items() if word.startswith("dropped: "))

    before, marker = dropped(), tmp_path / "loaded"
    system.broker.lpush(QUEUE, json.dumps(CODE[kind](marker)))
    assert system.client().get("long_lived", {"key": uuid.uuid4().hex})["load"] == 1
    eventually(lambda: dropped() == before + 1, "it is counted")
    assert not marker.exists()
    assert worker.poll() is None
    assert "Traceback" not in worker.log_file.read_text()


def test_the_pickled_bomb_runs_code_when_unpickled(tmp_path: Path) -> None:
    pickle.loads(pickled(tmp_path / "loaded"))  # noqa: S301 - the point
    assert (tmp_path / "loaded").exists()


def test_an_application_that_accepts_pickle_does_not_accept_it_for_a_refresh(tmp_path: Path) -> None:
    message = Message(
        body=pickled(tmp_path / "loaded"), content_type="application/x-python-serialize", content_encoding="binary",
        accept={"application/x-python-serialize", "application/json"},
    )  # fmt: skip
    message.headers = {"task": messages.TASK_NAME, "id": "x"}
    fault = validate_message(message, refreshes_only=False)
    assert fault is not None
    assert fault.reason is DropReason.NOT_JSON
    assert not (tmp_path / "loaded").exists()


@pytest.mark.parametrize("kind", KINDS)
def test_a_reader_loads_no_code_from_the_cache(
    running: tuple[System, GuardedProcess], tmp_path: Path, kind: str
) -> None:
    system, _ = running
    reader = system.reader(kind)
    params = {"key": f"planted for {kind}"}
    key = reader.key("long_lived", params)
    load = reader.get("long_lived", params)["load"]
    header = (system.cache.get(key.entry) or b"")[:FIXED_HEADER_BYTES]
    system.cache.set(key.entry, header + pickled(tmp_path / "loaded"))
    with pytest.raises(DecodeError):
        reader.get("long_lived", params)
    # No entry at all: a miss, and the next commit replaces it.
    system.cache.set(key.entry, pickled(tmp_path / "loaded"))
    assert reader.get("long_lived", params)["load"] == load + 1
    assert not (tmp_path / "loaded").exists()
