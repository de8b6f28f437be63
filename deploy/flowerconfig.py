"""Flower's configuration: ``celery -A refresher flower --conf=deploy/flowerconfig.py``.

Flower reads the environment (FLOWER_…) and the command line first, then this file, which has the last word over the
environment; so it looks at what has been said before it decides. Secrets stay in the environment: FLOWER_BASIC_AUTH
(user:password, comma-separated), FLOWER_COOKIE_SECRET, FLOWER_OAUTH2_KEY, FLOWER_OAUTH2_SECRET.
"""

import os
import sys
from logging import INFO, getLogger  # a name that is an option of Flower, as "logging" is, would set it

from tornado.options import options as said

# Flower's own default is every interface.
address = said.address or "127.0.0.1"

_signs_in = bool(said.basic_auth) or bool(said.auth_provider and said.auth)
_on_loopback = address in {"127.0.0.1", "::1", "localhost"} and not said.unix_socket

if not _signs_in and not _on_loopback:
    sys.exit(
        f"error: Flower would listen on {said.unix_socket or address} and let anyone in: set "
        "FLOWER_BASIC_AUTH=user:password (or --auth_provider and --auth for OAuth), or let it listen on 127.0.0.1"
    )
if not _signs_in:
    sys.stderr.write(
        f"warning: Flower on {address} asks nobody for a password, and every user of this machine can read it: "
        "set FLOWER_BASIC_AUTH=user:password\n"
    )
if os.environ.get("FLOWER_UNAUTHENTICATED_API"):
    sys.exit("error: FLOWER_UNAUTHENTICATED_API opens Flower's API to anyone: unset it")

# At the level debug Flower logs its own settings, and the cookie's secret with them.
getLogger("flower.command").setLevel(INFO)

# To look at, not to act on: with it Flower refuses to shut workers down, to revoke and to send tasks.
read_only = True
# Its shelve file would be unpickled at the next start, and debug mode shows tracebacks in pages.
persistent = False
debug = False
# A refresh is shown by its query (name), its key's digest (args) and what came of it (result); uuid opens the task.
tasks_columns = "name,args,state,result,received,runtime,worker,uuid"
max_tasks = 10_000
max_workers = 1_000
purge_offline_workers = 3600
