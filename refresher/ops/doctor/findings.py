"""Findings: a check's report, and its remedy."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from api_client.config.environment import without_password
from api_client.trigger.broker import fault_text
from refresher.ops.permissions import USERS_GUIDE, is_forbidden

AS_OPERATOR: Final = f"sign in as operator ({USERS_GUIDE})"


class Level(StrEnum):
    """Severity of a finding. Only a PROBLEM makes the command exit with 1."""

    OK = "ok"
    WARNING = "warning"
    PROBLEM = "problem"


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check, and the remedy. ``check`` is the check's name in the table."""

    level: Level
    message: str
    remedy: str = ""
    check: str = ""

    def record(self) -> dict[str, str]:
        """Return the finding for ``--json``."""
        return {"check": self.check, "level": self.level, "said": self.message, "mend": self.remedy}


def ok(message: str) -> Finding:
    """Return a finding that nothing is wrong."""
    return Finding(Level.OK, message)


def warning(message: str, remedy: str) -> Finding:
    """Return a finding that does not change the exit code."""
    return Finding(Level.WARNING, message, remedy)


def problem(message: str, remedy: str = "") -> Finding:
    """Return a finding that makes the command exit with 1."""
    return Finding(Level.PROBLEM, message, remedy)


def unreachable(variable: str, url: str, error: Exception) -> Finding:
    """Return the finding that the server at ``url`` can't be used, without the URL's password."""
    remedy = "start it, or correct the variable"
    if is_forbidden(error) or is_forbidden(error.__cause__):
        remedy = "grant its user that permission: the templates of deploy/redis have all that are needed"
    return problem(f"{variable}={without_password(url)} can't be used: {fault_text(error, url)}", remedy)


def forbidden(error: Exception) -> Finding:
    """Return the finding of a check skipped for a missing permission, which the check ``rights`` names."""
    return warning(f"skipped: missing permission ({str(error)[:200]})", AS_OPERATOR)
