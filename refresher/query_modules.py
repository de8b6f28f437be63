"""Import of the modules that register an application's queries."""

from __future__ import annotations

import importlib
import sys
import traceback
from collections.abc import Iterable
from pathlib import Path

from api_client.errors import ConfigurationError


def import_from_working_directory() -> None:
    """Let modules that register queries be imported from the working directory, by a program that pip has installed.

    Celery's own does so while it imports its app, and no longer. Last, so that installed modules take precedence.
    """
    if "" not in sys.path:
        sys.path.append("")


def import_queries(modules: Iterable[str]) -> None:
    """Import the modules that register queries.

    Raises:
        ConfigurationError: one is no module's name, or can't be imported; names it and the reason.
    """
    for module in modules:
        if module.endswith(".py") or not all(map(str.isidentifier, module.split("."))):
            allowed = "names of modules as in an import, not files, separated by commas: my_queries,my_package.queries"
            raise ConfigurationError("REFRESHER_QUERIES", repr(module), f"expected {allowed}")
        try:
            importlib.import_module(module)
        except (ConfigurationError, KeyboardInterrupt):
            raise  # a wrong @query names the query and what is allowed
        except BaseException as error:
            # The module's own code has run, and may have called sys.exit: one line, whatever it raised.
            why = f"{type(error).__name__}: {str(error)[:300]}{_place(error, module)}"
            raise ConfigurationError("REFRESHER_QUERIES", repr(module), f"importing it failed with {why}") from error


def _place(error: BaseException, module: str) -> str:
    """Return in which line of the module's package an error arose, as text; empty where none of its lines has run."""
    package = module.partition(".")[0]
    place = ""
    for frame, line in traceback.walk_tb(error.__traceback__):
        is_theirs = frame.f_globals is not globals()
        if is_theirs and str(frame.f_globals.get("__name__")).partition(".")[0] == package:
            place = f" ({Path(frame.f_code.co_filename).name}, line {line})"
    return place
