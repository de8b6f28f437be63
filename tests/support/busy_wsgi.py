"""The Flask example for a server that loads it before it forks; by then it has read and triggered itself.

Each answer names the process that gave it.
"""

from __future__ import annotations

import os

from flask import Response
from flask_app import app as application

from api_client.default import default_client
from tests.support.busy_master import when_ready

__all__ = ["application"]


@application.after_request
def name_the_process(response: Response) -> Response:
    """Add the header."""
    response.headers["X-Pid"] = str(os.getpid())
    return response


when_ready(None)
# A process that is forked while another thread has the interpreter's lock never gets it: uWSGI's fork resets nothing.
default_client().flush(20)
