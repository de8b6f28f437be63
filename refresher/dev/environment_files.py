"""Files in the working directory that give another terminal the environment of ``refresher dev``.

The servers' ports and passwords are new at each start; a file has the same path each time.
"""

from __future__ import annotations

import fcntl
import os
import shlex
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from refresher.dev.errors import DevError

FOLDER: Final = ".refresher-dev"
COMMANDS: Final = (("sh, bash, zsh", f". {FOLDER}/env"), ("fish", f"source {FOLDER}/env"))
"""Shells, and the commands to type there."""


@contextmanager
def reserved_folder() -> Iterator[Path]:
    """Create the folder, which only its owner can read, and remove it at the end.

    Raises:
        DevError: another `refresher dev` runs in this directory, or it can't be written.
    """
    folder = Path(FOLDER).absolute()
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        descriptor = os.open(folder, os.O_RDONLY)
    except OSError as error:
        raise DevError(f"{folder} can't be created: {error.strerror}") from error
    try:
        # Its existence is not enough, since a power failure leaves it behind.
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)
    except BlockingIOError as error:
        raise DevError(f"another `refresher dev` runs in {folder.parent}: end it, or use another directory") from error
    finally:
        os.close(descriptor)


def write_environment(folder: Path, environ: Mapping[str, str]) -> None:
    """Write the variables for each shell of `COMMANDS`, readable only by the owner."""
    texts = {
        "env": "".join(f"export {name}={shlex.quote(value)}\n" for name, value in environ.items()),
        ".gitignore": "*\n",
    }
    for name, text in texts.items():
        path = folder / name
        path.unlink(missing_ok=True)
        path.touch(mode=0o600)
        path.write_text(text, encoding="utf-8")
