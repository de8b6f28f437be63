"""`refresher size`: the resources for a number of keys."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest
from typer.testing import CliRunner

from refresher.cli.commands import app
from refresher.ops.sizing import MESSAGES_PER_SECOND, PROCESS_BYTES, WORKER_BYTES, size

TUNE = Path(__file__).parents[4] / "docs/how-to/tune.md"


def test_each_key_is_loaded_once_per_ttl_and_longer_loads_overlap_more() -> None:
    found = size(keys=60_000, ttl_seconds=600, load_seconds=0.2)
    assert (found.refreshes_per_second, found.messages_per_second) == (100.0, 100.0)
    assert (found.loads_at_once, found.workers, found.processes_each) == (28, 1, 28)
    assert found.workers_bytes == WORKER_BYTES + 28 * PROCESS_BYTES


def test_a_main_process_passes_on_a_bounded_number_of_messages_per_second() -> None:
    many = size(keys=MESSAGES_PER_SECOND * 3, ttl_seconds=1, load_seconds=0.01)
    assert many.workers == 4  # three, and a third for peaks
    assert many.workers * many.processes_each >= many.loads_at_once


def test_a_batch_is_one_message_and_one_load() -> None:
    one_by_one, batched = (size(keys=1_000_000, ttl_seconds=600, load_seconds=0.05, batch=batch) for batch in (1, 100))
    assert one_by_one.messages_per_second == pytest.approx(100 * batched.messages_per_second)
    assert one_by_one.loads_at_once > 50 * batched.loads_at_once
    assert one_by_one.cores > 10 * batched.cores
    assert one_by_one.cache_bytes == batched.cache_bytes


def test_few_keys_still_take_one_process() -> None:
    found = size(keys=1, ttl_seconds=86_400, load_seconds=0.001)
    assert (found.loads_at_once, found.workers, found.processes_each) == (1, 1, 1)


def test_the_guide_shows_what_the_command_prints() -> None:
    [block] = re.findall(r"```console\n\$ refresher (size .*?)```", TUNE.read_text(encoding="utf-8"), re.DOTALL)
    command, _, shown = block.partition("\n")
    printed = CliRunner().invoke(app, shlex.split(command)).stdout
    assert [line.rstrip() for line in printed.splitlines()] == shown.splitlines()


def test_size_as_json_has_the_same_figures() -> None:
    printed = CliRunner().invoke(app, ["size", "--keys", "6e4", "--ttl", "10m", "--load", "200ms", "--json"]).stdout
    assert json.loads(printed)["loads_at_once"] == 28


@pytest.mark.parametrize(
    ("option", "value", "allowed"),
    [
        ("--keys", "0", "greater than or equal to 1"), ("--keys", "inf", "less than or equal to"),
        ("--keys", "many", "valid number"), ("--ttl", "0", "allowed is more than 0"),
        ("--load", "-1", "is not a duration"), ("--load", "10m", "allowed is less than --ttl"),
        ("--batch", "1000", "less than or equal to 100"),
    ],
)  # fmt: skip
def test_a_wrong_value_is_named_with_what_is_allowed(option: str, value: str, allowed: str) -> None:
    options = {"--keys": "10", "--ttl": "10m", "--load": "50ms", option: value}
    refused = CliRunner().invoke(app, ["size", *(word for pair in options.items() for word in pair)])
    assert refused.exit_code == 2
    assert option in refused.output
    assert allowed in refused.output
