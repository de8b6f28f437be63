"""Hypothesis profiles: the same examples in every CI run, else new ones each time. No deadline, for slow machines."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

QUIET = [HealthCheck.too_slow, HealthCheck.data_too_large]

settings.register_profile("home", deadline=None, suppress_health_check=QUIET)
settings.register_profile("ci", deadline=None, derandomize=True, suppress_health_check=QUIET)
settings.load_profile("home" if os.environ.get("CI", "") in {"", "false"} else "ci")
