"""Messages that the guard passes on to Celery, in a worker that only refreshes and in an application's."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kombu.message import Message

from api_client.protocol.messages import TASK_NAME
from refresher.flow.ports import DropReason
from refresher.worker.celery_fixes.message_guard import HEADERS, validate_message
from tests.support.poison import POISON, SECRET

EMBED = {"callbacks": None, "errbacks": None, "chain": None, "chord": None}


def message(headers: Any, body: object = ([{}], {}, EMBED), **options: Any) -> Message:
    plain = {"content_type": "application/json", "content_encoding": "utf-8", "accept": {"application/json"}}
    made = Message(json.dumps(body), **(plain | options))
    made.headers = headers
    return made


def ours(**headers: Any) -> Message:
    return message({"task": TASK_NAME, "id": "x"} | headers)


@pytest.mark.parametrize("refreshes_only", [True, False])
@pytest.mark.parametrize(
    "right",
    [
        {}, {"eta": "2020-01-01T00:00:00Z"}, {"eta": "2020-01-01T00:00:00"}, {"expires": "2999-01-01T00:00:00+02:00"},
        {"timelimit": [None, 2.5]}, {"timelimit": (30, 20)}, {"retries": 3, "group": "g", "root_id": "r"},
        {"stamped_headers": ["a"], "stamps": {"a": 1}}, dict.fromkeys(HEADERS) | {"id": "x"},
        {"header of somebody": [5]},
    ],
)  # fmt: skip
def test_a_publisher_s_message_passes_the_guard(right: dict[str, Any], refreshes_only: bool) -> None:
    assert validate_message(ours(**right), refreshes_only=refreshes_only) is None


@pytest.mark.parametrize("body", [5, None, True, 1.5, {"a": 1}])
def test_a_body_that_is_neither_text_nor_bytes_is_rejected_without_an_exception(body: Any) -> None:
    odd = ours()
    odd.body = body
    fault = validate_message(odd, refreshes_only=True)
    assert fault.reason in {DropReason.UNDECODABLE, DropReason.BODY}


@pytest.mark.parametrize(
    "name", ["id", "root_id", "parent_id", "group", "shadow", "origin", "argsrepr", "kwargsrepr", "lang"]
)
@pytest.mark.parametrize("text", ["a\nb", "a\rb", "a\x1b[2Kb", "a\x85b", "a\u2028b", "a\u202eb", "a\x00b"])
def test_a_header_that_would_forge_or_hide_a_log_line_is_rejected(name: str, text: str) -> None:
    fault = validate_message(ours(**{name: text}), refreshes_only=False)
    assert fault == (DropReason.HEADERS, f"its header {name!r} is wrong")


@pytest.mark.parametrize("limit", [10**400, -(10**400), float("inf"), float("nan"), True, "1"])
def test_an_invalid_time_limit_is_rejected_without_an_exception(limit: object) -> None:
    fault = validate_message(ours(timelimit=[None, limit]), refreshes_only=True)
    assert fault.text == "its header 'timelimit' is wrong"


@pytest.mark.parametrize(
    ("foreign", "fault"),
    [
        (message({"task": "own.task", "id": "x", "eta": "tomorrow"}, [[1, 2], {}, {"chain": [1]}]), None),
        (message({"task": "own.task", "id": "x"}, content_type="application/x-python-serialize"), None),
        (message({}, {"task": "own.task", "id": "x", "args": []}), None),
        (message({"task": "own.task"}), "it has no id"),
        (message({"task": ["own.task"], "id": "x"}), "it names no task"),
        (message({}, {"task": TASK_NAME, "id": "x", "args": [{}]}), "it is of protocol 1"),
        (message({}, [1]), "it names no task"),
        (message({}, {"task": ["own.task"], "id": "x"}), "it names no task"),
        (message({}, content_type="application/x-python-serialize"), "its body can't be decoded: ContentDisallowed"),
        (message(["task"]), "its headers are not a mapping"),
    ],
)
def test_a_foreign_message_is_left_to_celery_in_an_application(foreign: Message, fault: str | None) -> None:
    found = validate_message(foreign, refreshes_only=False)
    assert (found and found.text) == fault
    assert validate_message(foreign, refreshes_only=True) is not None


# What is no envelope, or is compressed, is rejected before: acceptance/test_poison.py has these, too.
@pytest.mark.parametrize(
    "kind", sorted(kind for kind, (reason, _) in POISON.items() if reason != "no_envelope" and "compress" not in kind)
)
def test_a_malformed_message_is_rejected_with_its_reason(kind: str) -> None:
    reason, build = POISON[kind]
    sent = build()
    received = Message(
        base64.b64decode(sent["body"]), headers=sent["headers"], content_type=sent["content-type"],
        content_encoding=sent["content-encoding"], accept={"application/json"},
    )  # fmt: skip
    fault = validate_message(received, refreshes_only=True)
    assert fault.reason == reason
    assert SECRET not in fault.text


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)


@given(st.dictionaries(st.sampled_from([*HEADERS, "id", "task"]), anything) | anything, anything, st.booleans())
def test_the_guard_raises_for_no_message(headers: Any, body: object, refreshes_only: bool) -> None:
    whole = {"task": TASK_NAME, "id": "x"} | headers if isinstance(headers, dict) else headers
    validate_message(message(whole, body), refreshes_only=refreshes_only)
