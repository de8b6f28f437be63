"""Import of the modules that register an application's queries."""

from __future__ import annotations

import importlib
import sys
import traceback
from collections.abc import Iterable
from pathlib import Path

from api_client.errors import ConfigurationError


def import_from_working_directory() -> None:
    """Make the working directory importable, for modules with queries, in a program that pip has installed.

    Celery's program does so only while it imports its app. The directory comes last, so that installed modules take
    precedence.
    """
    if "" not in sys.path:
        sys.path.append("")


def import_queries(modules: Iterable[str]) -> None:
    """Import the modules that register queries.

    Raises:
        ConfigurationError: a name is not a module's, or the module can't be imported; the message has name and reason.
    """
    for module in modules:
        if module.endswith(".py") or not all(map(str.isidentifier, module.split("."))):
            allowed = "names of modules as in an import, not files, separated by commas: my_queries,my_package.queries"
            raise ConfigurationError("REFRESHER_QUERIES", repr(module), f"expected {allowed}")
        try:
            importlib.import_module(module)
        except (ConfigurationError, KeyboardInterrupt):
            raise  # a wrong @query, whose message names the query and the allowed values
        except BaseException as error:
            # The module's own code may raise anything, or call sys.exit; the result is one line.
            why = f"{type(error).__name__}: {str(error)[:300]}{_place(error, module)}"
            raise ConfigurationError("REFRESHER_QUERIES", repr(module), f"importing it failed with {why}") from error


def _place(error: BaseException, module: str) -> str:
    """Return the line of the module's package where an error arose, as text; "" if none of its lines has run."""
    package = module.partition(".")[0]
    place = ""
    for frame, line in traceback.walk_tb(error.__traceback__):
        is_theirs = frame.f_globals is not globals()
        if is_theirs and str(frame.f_globals.get("__name__")).partition(".")[0] == package:
            place = f" ({Path(frame.f_code.co_filename).name}, line {line})"
    return place
