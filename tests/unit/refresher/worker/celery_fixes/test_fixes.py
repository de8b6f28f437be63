"""The fixes of Celery and kombu: each names its code, its upstream report and its test; versions are checked."""

from __future__ import annotations

import importlib
import operator
import re
import tomllib
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import redis
from kombu.exceptions import OperationalError
from packaging.requirements import Requirement

from refresher.worker import celery_fixes
from refresher.worker.celery_fixes import CHECKED, warn_of_unchecked_versions
from refresher.worker.celery_fixes import consumer as consumer_module
from refresher.worker.celery_fixes.consumer import RefreshConsumer

ROOT = Path(__file__).parents[5]
LIST = ROOT / "docs/development/upstream/README.md"
FIXES = [line.strip("| ").split(" | ") for line in LIST.read_text().splitlines() if line.startswith("| `")]


@pytest.mark.parametrize(("where", "fault", "upstream", "test"), FIXES, ids=[fix[0] for fix in FIXES])
def test_a_fix_names_code_report_and_test_that_exist(where: str, fault: str, upstream: str, test: str) -> None:
    assert fault
    module, _, name = where.strip("`").partition(":")
    is_elsewhere = "." in module  # a reader's or Flower's, by its whole name
    module = module if is_elsewhere else f"{celery_fixes.__name__}.{module}"
    assert operator.attrgetter(name)(importlib.import_module(module)) is not None
    link = re.fullmatch(r"\[[\w#]+\]\((.+)\)", upstream)
    assert link or (is_elsewhere and upstream == "not reported")
    assert not link or link[1].startswith("https://github.com/celery/") or (LIST.parent / link[1]).is_file()
    file, _, function = test.strip("`").partition("::")
    assert f"def {function}(" in (ROOT / file).read_text()


def test_each_module_of_the_package_is_part_of_a_fix() -> None:
    parts = {"__init__", "refused_commands"}  # the latter names, in a log line, what `consumer` survived
    modules = {path.stem for path in Path(celery_fixes.__file__).parent.glob("*.py")} - parts
    named = {where.strip("`").partition(":")[0] for where, *_ in FIXES}
    assert modules == {module for module in named if "." not in module}


def test_each_report_is_listed() -> None:
    assert all(f"({report.name})" in LIST.read_text() for report in LIST.parent.glob("*.md") if report != LIST)


def test_the_checked_versions_are_those_that_the_project_allows_and_installs(caplog: pytest.LogCaptureFixture) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    allowed = {
        requirement.name: requirement.specifier
        for requirement in map(Requirement, project["dependencies"] + project["optional-dependencies"]["worker"])
    }
    assert {one.name: allowed.get(one.name, one.specifier) for one in CHECKED} == {
        one.name: one.specifier for one in CHECKED
    }
    warn_of_unchecked_versions()
    assert not caplog.messages


def test_a_worker_warns_of_unchecked_versions(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(celery_fixes, "version", lambda name: "6.0.0rc1" if name == "celery" else str(LOWEST[name]))
    warn_of_unchecked_versions()
    (line,) = caplog.messages
    assert line == "the fixes of Celery and kombu have not been checked with celery 6.0.0rc1, but with <5.8,>=5.7"


LOWEST = {checked.name: min(spec.version for spec in checked.specifier) for checked in CHECKED}


def test_an_exception_while_reading_a_message_ends_only_the_connection() -> None:
    reported: list[Any] = []
    consumer = SimpleNamespace(connection_errors=(OSError,), _report_unreadable=reported.append)

    def loop() -> None:
        raise KeyError("args")

    with pytest.raises(ConnectionError):
        RefreshConsumer.survive_unreadable(consumer, loop)()  # type: ignore[arg-type]
    assert [type(error) for error in reported] == [KeyError]


def test_a_broker_that_can_t_be_asked_for_a_replaced_key_ends_only_the_connection(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(consumer_module, "REFUSED_PAUSE_SECONDS", 0.0)
    consumer: Any = RefreshConsumer.__new__(RefreshConsumer)
    consumer.channel_errors = (redis.ResponseError,)
    consumer.app = SimpleNamespace(connection_for_read=raising(OperationalError("refused")))
    start = raising(redis.ResponseError("WRONGTYPE Operation against a key"))
    with pytest.raises(ConnectionError):
        consumer.survive_refusals(start)(consumer)
    assert "OperationalError" in caplog.text


def raising(error: Exception) -> Callable[..., Any]:
    def call(*_: object) -> Any:
        raise error

    return call
