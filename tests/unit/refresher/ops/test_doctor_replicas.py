"""Doctor's finding on a master whose place another one can take."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from refresher.ops.doctor import cache
from refresher.ops.doctor.findings import Level

SENTINELS, CLUSTER = "redis+sentinel://a:26379/mymaster/0", "redis+cluster://a:7000"


@pytest.mark.parametrize(
    ("url", "info", "level", "words"),
    [
        (SENTINELS, {"connected_slaves": 0}, Level.WARNING, "none is connected"),
        (SENTINELS, {"connected_slaves": 2}, Level.WARNING, "min-replicas-to-write is 0"),
        (SENTINELS, {"connected_slaves": 2, "min_slaves_good_slaves": 1}, Level.OK, "min-replicas-max-lag"),
        (CLUSTER, {"connected_slaves": 0}, Level.WARNING, "none is connected"),
        (CLUSTER, {"connected_slaves": 1}, Level.OK, "cluster-node-timeout"),
    ],
)
def test_doctor_warns_of_a_master_that_goes_on_alone(url: str, info: dict[str, Any], level: Level, words: str) -> None:
    (found,) = cache.replicas(SimpleNamespace(worker=SimpleNamespace(redis_url=url), info=info))  # type: ignore[arg-type]
    assert (found.level, bool(found.remedy)) == (level, level is Level.WARNING)
    assert words in found.message


def test_doctor_has_nothing_to_say_of_a_single_server() -> None:
    single = SimpleNamespace(worker=SimpleNamespace(redis_url="redis://a:6379/0"), info={"connected_slaves": 2})
    assert list(cache.replicas(single)) == []  # type: ignore[arg-type]
