"""gunicorn's settings for an application that reads through the cache. BIND and WEB_CONCURRENCY come by environment."""

import os
import shutil
import tempfile
from typing import Any

# prometheus_client looks for it when it is first imported: not here. What gunicorn starts anew finds it set.
_made = ""
if "PROMETHEUS_MULTIPROC_DIR" not in os.environ:
    _made = os.environ["PROMETHEUS_MULTIPROC_DIR"] = tempfile.mkdtemp(prefix="metrics-")

bind = os.environ.get("BIND", "127.0.0.1:8000")
workers = int(os.environ.get("WEB_CONCURRENCY", "2"))
# A read that waits for a miss holds its thread and no other.
worker_class = "gthread"
threads = 4
# The application is imported once, before the fork. A client that was made and used by then is safe: each child makes
# connections and threads of its own.
preload_app = True
# Above the longest wait of a read, so that no process is killed for it.
timeout = 30
# On SIGTERM requests end first; then each process publishes what it has triggered, for a second at most.
graceful_timeout = 20
# A heartbeat by file must not wait for a disk.
worker_tmp_dir = "/dev/shm"  # noqa: S108 - no other has a file by that name: it is removed as soon as it is open
control_socket_disable = True
accesslog = "-"


def child_exit(server: Any, worker: Any) -> None:
    """Forget the gauges of a process that has ended; its counters and histograms stay in the sums."""
    from prometheus_client.multiprocess import mark_process_dead

    mark_process_dead(worker.pid)


def on_exit(server: Any) -> None:
    """Remove the folder of the numbers, unless a new master has taken it over (SIGUSR2)."""
    if _made and not server.reexec_pid:
        shutil.rmtree(_made, ignore_errors=True)
