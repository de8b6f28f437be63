"""Changes to Celery and kombu in a worker, by subject; those to a whole app are in `app`.

docs/development/upstream/README.md lists them all. Those for readers are in `api_client.trigger.private_app` and
`api_client.trigger.broker`, those for Flower in `refresher.flower`.
"""

from __future__ import annotations

import logging
from importlib.metadata import version
from typing import Final

from packaging.requirements import Requirement

log: Final = logging.getLogger(__name__)

CHECKED: Final = tuple(
    map(Requirement, ("celery>=5.7,<5.8", "kombu>=5.7,<5.8", "billiard>=4.3.2,<4.4", "amqp>=5.3,<5.5"))
)
"""Versions with which the fixes have been checked."""


def warn_of_unchecked_versions() -> None:
    """Log the installed libraries outside of `CHECKED`. The fixes are applied nevertheless.

    Without them a fault of the broker or a malformed message ends the worker, so an unchecked fix is the smaller risk.
    """
    for requirement in CHECKED:
        installed = version(requirement.name)
        if not requirement.specifier.contains(installed, prereleases=True):
            log.warning(
                "the fixes of Celery and kombu have not been checked with %s %s, but with %s",
                requirement.name, installed, requirement.specifier,
            )  # fmt: skip
