"""gunicorn settings for an application that reads through the cache; BIND and WEB_CONCURRENCY are variables."""

import os
import shutil
import tempfile
from typing import Any

# prometheus_client reads it at its first import, so it is not imported here. Restarted workers find it set.
_made = ""
if "PROMETHEUS_MULTIPROC_DIR" not in os.environ:
    _made = os.environ["PROMETHEUS_MULTIPROC_DIR"] = tempfile.mkdtemp(prefix="metrics-")

bind = os.environ.get("BIND", "127.0.0.1:8000")
workers = int(os.environ.get("WEB_CONCURRENCY", "2"))
# A read that misses blocks only its own thread.
worker_class = "gthread"
threads = 4
# The application is imported once, before the fork. A client that was created and used by then is safe: each child
# opens its own connections and threads.
preload_app = True
# Above the longest wait of a read, so that no waiting process is killed.
timeout = 30
# On SIGTERM requests finish first; then each process publishes its pending triggers, for at most 1 s.
graceful_timeout = 20
# The heartbeat file must not wait for a disk.
worker_tmp_dir = "/dev/shm"  # noqa: S108 - no other has a file by that name: it is removed as soon as it is open
control_socket_disable = True
accesslog = "-"


def child_exit(server: Any, worker: Any) -> None:
    """Remove the gauges of an exited process; its counters and histograms remain in the sums.

    Their files (two a process) are kept until the master ends, or its sums would fall, and Prometheus would take that
    for a reset. That is few while a process ends only by a reload or a crash: so there is no max_requests here.
    """
    from prometheus_client.multiprocess import mark_process_dead

    mark_process_dead(worker.pid)


def on_exit(server: Any) -> None:
    """Remove the metrics directory, unless a new master has taken it over (SIGUSR2)."""
    if _made and not server.reexec_pid:
        shutil.rmtree(_made, ignore_errors=True)
