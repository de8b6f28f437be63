"""A runner of lease steps that runs each step alone: for tests that check, or act, between two of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

from api_client.errors import CacheUnavailable
from api_client.protocol.lease import Call
from api_client.transport.scripts import Until

T = TypeVar("T")


class StepByStep:
    """Base of a `LeaseStepRunner` that overrides `run` alone."""

    def run(self, call: Call[T], /) -> T:
        """Run one step."""
        raise NotImplementedError

    def run_each(self, calls: Sequence[Call[Any]], /, *, until: Until = all) -> list[Any]:
        """Run steps one after the other; a failed one does not affect the others."""
        return [self._run_or_error(call) for call in calls]

    def _run_or_error(self, call: Call[Any]) -> Any:
        try:
            return self.run(call)
        except CacheUnavailable as error:
            return error
