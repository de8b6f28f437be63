from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from tests.support.tiers import is_in, resources_of, turn_of


class StandIn:
    """What a test says of itself."""

    def __init__(self, nodeid: str, *fixtures: str, marks: tuple[str, ...] = (), **params: Any) -> None:
        self.nodeid, self.fixturenames, self.callspec = nodeid, fixtures, SimpleNamespace(params=params)
        self._marks = marks
        self.module = SimpleNamespace()

    def get_closest_marker(self, name: str) -> object:
        return name if name in self._marks else None

    def iter_markers(self) -> list[SimpleNamespace]:
        return [SimpleNamespace(name=name) for name in (*self._marks, *resources_of(self))]  # type: ignore[arg-type]


ACCEPTANCE, CONTRACT = "tests/acceptance/test_a.py::test_a", "tests/contract/test_a.py::test_a"


@pytest.mark.parametrize(
    ("test", "resources", "tier"),
    [
        (StandIn("tests/unit/test_a.py::test_a"), set(), "check"),
        (StandIn("tests/unit/test_a.py::test_a", "redis_server"), set(), "check"),
        (StandIn("tests/unit/test_a.py::test_a", marks=("slow",)), set(), "all"),
        (StandIn(CONTRACT, "redis_server"), {"redis"}, "test"),
        (StandIn(CONTRACT, "arcadedb"), {"graph"}, "test"),
        (StandIn(CONTRACT, "redis_binary", redis_binary="system"), {"redis"}, "test"),
        (StandIn(CONTRACT, "redis_binary", redis_binary="oldest"), {"redis", "second_redis"}, "all"),
        (StandIn(CONTRACT, broker="rabbitmq"), {"rabbitmq"}, "all"),
        (StandIn(CONTRACT, "neo4j_server"), {"neo4j"}, "all"),
        (StandIn(CONTRACT, marks=("long",)), set(), "long"),
        (StandIn(ACCEPTANCE, "redis_server"), {"redis", "slow"}, "all"),
        (StandIn(ACCEPTANCE, "redis_server", marks=("smoke",)), {"redis"}, "test"),
        (StandIn(ACCEPTANCE, "browser", marks=("smoke",)), {"browser"}, "all"),
        (StandIn("tests/integration/helm/test_a.py::test_a"), {"k8s"}, "all"),
    ],
    ids=lambda value: value.nodeid if isinstance(value, StandIn) else None,
)
def test_what_a_test_needs_decides_its_one_tier(test: Any, resources: set[str], tier: str) -> None:
    assert resources_of(test) == resources
    assert [name for name in ("check", "test", "all", "long") if is_in(name, test)] == [tier]


def test_what_has_a_long_variant_is_in_the_long_tier_as_well() -> None:
    test: Any = StandIn(CONTRACT)
    test.module.IS_LONG = False
    assert [name for name in ("check", "test", "all", "long") if is_in(name, test)] == ["test", "long"]


def test_files_that_take_long_begin_first() -> None:
    paths = ["tests/contract/test_a.py", "tests/acceptance/test_a.py", "tests/acceptance/worker_faults/test_a.py"]
    assert sorted(paths, key=turn_of) == paths[::-1]
