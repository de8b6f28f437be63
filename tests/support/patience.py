"""Long timeouts of publishers: of a test by its fixture `patient_publishers`, and of programs that it starts."""

from __future__ import annotations

import os
from functools import partialmethod
from typing import TYPE_CHECKING, Final

from api_client import aio, client
from api_client.read import wait
from api_client.trigger import broker
from api_client.trigger.publisher import Publisher
from tests.support.waiting import MAX_WAIT_SECONDS

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

PUBLISHER_TIMEOUTS: Final = (
    (broker, "TIMEOUT_SECONDS"), (client, "PUBLISH_BOUND_SECONDS"), (aio, "PUBLISH_BOUND_SECONDS"),
)  # fmt: skip
"""The modules and names of half a second for a step of the broker, and of three seconds for `refresh`."""


def publish_patiently() -> None:
    """Raise them in this process, for good, and the second that `close` gives to what is left."""
    for module, name in PUBLISHER_TIMEOUTS:
        setattr(module, name, MAX_WAIT_SECONDS)
    # A message that waits in its queue is published once, too: the second one may refresh what the program invalidates.
    wait.REPUBLISH_INTERVAL_SECONDS = 10 * MAX_WAIT_SECONDS  # type: ignore[misc]
    Publisher.close = partialmethod(Publisher.close, MAX_WAIT_SECONDS)  # type: ignore[assignment, method-assign]


def patient_environment(folder: Path, env: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of a program that publishes patiently; ``folder`` gets a module that sees to it."""
    (folder / "sitecustomize.py").write_text("from tests.support import patience\n\npatience.publish_patiently()\n")
    return {**env, "PYTHONPATH": f"{folder}{os.pathsep}{env['PYTHONPATH']}"}
