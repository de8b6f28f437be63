"""The command ``refresher``: arguments and output without logic. `refresher.cli.commands` lists the commands.

Commands of one subject share a file: `refresher.cli.read` for those that read a key, `refresher.cli.refresh` for those
that load or invalidate one, `refresher.cli.dead` for dead letters. Their logic is in `refresher.ops` and the clients.
"""

from __future__ import annotations

import sys

from refresher.first_process import end_on_sigterm


def main() -> None:
    """Run the command line; exit codes: 0 done, 1 something is wrong (one line says what), 2 wrong usage.

    An expected error ends here as one line, never as a traceback; Ctrl-C exits with 130.
    """
    end_on_sigterm()
    try:
        _run()
    except KeyboardInterrupt:  # while modules are imported; Typer handles it during a command
        raise SystemExit(130) from None


def _run() -> None:
    try:
        from refresher.cli.commands import EXPECTED_ERRORS, app
        from refresher.query_modules import import_from_working_directory
    except ModuleNotFoundError as error:
        _fail(f"{error.name} is not installed: pip install 'refresher[worker]'")
    import_from_working_directory()
    try:
        app(prog_name="refresher")
    except EXPECTED_ERRORS as error:
        _fail(str(error))


def _fail(message: str) -> None:
    sys.stderr.write(f"error: {message}\n")
    raise SystemExit(1)
