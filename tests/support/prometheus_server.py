"""A test's own Prometheus, with the project's rules, sped up."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import httpx

from refresher.embedded import GuardedProcess, free_port
from tests.support.requirements import skip_or_fail
from tests.support.waiting import MAX_WAIT_SECONDS, eventually

RULES: Final = Path(__file__).parents[2] / "deploy" / "prometheus"
SCRAPE_SECONDS: Final = {"refresher-workers": 3}
"""A worker takes 2.5 s to report that a server does not answer. All others are scraped each second."""


class Prometheus:
    """A running Prometheus that scrapes ``ports``, by the names of their jobs; ``minutes`` are as many seconds."""

    def __init__(self, stack: ExitStack, folder: Path, ports: Mapping[str, int], minutes: int) -> None:
        program = shutil.which("prometheus")
        if program is None:
            skip_or_fail("prometheus is not installed (Debian's package prometheus)")
        for name in ("refresher.rules.yml", "refresher.alerts.yml"):
            # The same rules, over a period short enough for a test.
            text = re.sub(r"\[\d+m\]", f"[{minutes}s]", (RULES / name).read_text(encoding="utf-8"))
            (folder / name).write_text(re.sub(r"for: \d+[ms]", "for: 1s", text), encoding="utf-8")
        jobs = [
            {
                "job_name": job,
                "scrape_interval": f"{SCRAPE_SECONDS.get(job, 1)}s",
                "scrape_timeout": f"{SCRAPE_SECONDS.get(job, 1)}s",
                "static_configs": [{"targets": [f"127.0.0.1:{port}"]}],
            }
            for job, port in ports.items()
        ]
        # JSON is YAML.
        config = {
            "global": {"evaluation_interval": "1s"},
            "rule_files": ["refresher.rules.yml", "refresher.alerts.yml"],
            "scrape_configs": jobs,
        }
        (folder / "prometheus.yml").write_text(json.dumps(config), encoding="utf-8")
        port = free_port()
        process = GuardedProcess.start(
            [
                program, f"--config.file={folder / 'prometheus.yml'}", f"--storage.tsdb.path={folder / 'data'}",
                f"--web.listen-address=127.0.0.1:{port}",
            ],
            env={}, cwd=folder, log_file=folder / "prometheus.log",
        )  # fmt: skip
        stack.callback(process.kill)
        self._http = stack.enter_context(
            httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=MAX_WAIT_SECONDS, trust_env=False)
        )
        eventually(self._is_ready, "Prometheus is ready")

    def _is_ready(self) -> bool:
        try:
            return self._http.get("/-/ready").status_code == httpx.codes.OK
        except httpx.TransportError:
            return False

    def query(self, expression: str) -> list[Any]:
        """Return the samples of an instant query, without those that are not numbers."""
        reply = self._http.get("/api/v1/query", params={"query": expression}).json()
        assert reply["status"] == "success", f"{expression}: {reply}"
        return [sample for sample in reply["data"]["result"] if sample["value"][1] != "NaN"]

    def firing(self) -> set[str]:
        """Return the names of the firing alerts."""
        return {sample["metric"]["alertname"] for sample in self.query('ALERTS{alertstate="firing"}')}
