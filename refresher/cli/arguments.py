"""What several commands do with their arguments."""

from __future__ import annotations

from urllib.parse import urlsplit

import typer


def without_password(url: str | None) -> str | None:
    """Refuse a password on the command line, where everyone on the machine can read it.

    Raises:
        typer.BadParameter: there is one, or this is no URL.
    """
    try:
        has_password = url is not None and (urlsplit(url).password is not None or "password=" in urlsplit(url).query)
    except ValueError as error:
        raise typer.BadParameter("not a URL") from error
    if has_password:
        raise typer.BadParameter("no password on the command line: put it into the environment, see --help")
    return url
