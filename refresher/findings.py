"""What a check of `refresher doctor` has found."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Level(StrEnum):
    """How bad a finding is. Only a PROBLEM makes the command exit with 1."""

    OK = "ok"
    WARNING = "warning"
    PROBLEM = "problem"


@dataclass(frozen=True, slots=True)
class Finding:
    """What one check found, and how to mend it where that is needed."""

    check: str
    level: Level
    said: str
    mend: str = ""
