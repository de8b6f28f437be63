"""The chart's pods as containers: a kubelet's part for a rendered Deployment, as far as our manifests use it.

Arguments, variables, user, capabilities, read-only root, mounts, limits, and the probes over HTTP from outside the
container. Not emulated: Services, network policies, topology, disruption budgets, autoscalers.
"""

from __future__ import annotations

import base64
import http.client
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.support.chart import Manifest, pod_of, ports_of, variables
from tests.support.containers import Engine
from tests.support.waiting import MAX_WAIT_SECONDS


class Pod:
    """One pod of a Deployment, running in an engine, on networks of the engine."""

    def __init__(self, engine: Engine, manifests: list[Manifest], part: str, networks: list[str], folder: Path) -> None:
        self._engine, self._folder = engine, folder
        self._objects = {(one["kind"], one["metadata"]["name"]): one for one in manifests}
        [self._deployment] = [
            one for (kind, name), one in self._objects.items() if kind == "Deployment" and name.endswith(f"-{part}")
        ]
        pod = pod_of(self._deployment)
        [self._container] = pod["containers"]
        self.name: str = self._deployment["metadata"]["name"]
        secrets = {name: one["stringData"] for (kind, name), one in self._objects.items() if kind == "Secret"}
        env_file = folder / f"{part}.env"
        env_file.touch(mode=0o600)
        environment = variables(self._container["env"], secrets, {})
        env_file.write_text("".join(f"{name}={value}\n" for name, value in environment), encoding="utf-8")
        engine.podman(
            "run", "--detach", f"--name={self.name}", f"--hostname={self.name}", f"--network={','.join(networks)}",
            f"--env-file={env_file}", f"--stop-timeout={pod['terminationGracePeriodSeconds']}",
            *_confinement({**pod["securityContext"], **self._container["securityContext"]}),
            f"--memory={self._container['resources']['limits']['memory'].rstrip('i').lower()}",
            *self._mounts(pod), self._container["image"], *self._container["args"],
        )  # fmt: skip

    def _mounts(self, pod: Manifest) -> Iterator[str]:
        volumes = {volume["name"]: volume for volume in pod["volumes"]}
        for mount in self._container["volumeMounts"]:
            volume = volumes[mount["name"]]
            if "emptyDir" in volume:
                group = pod["securityContext"]["fsGroup"]
                folder = self._folder / f"{self.name}-{mount['name']}"
                folder.mkdir()
                os.chown(folder, -1, group)
                folder.chmod(0o2777)
            else:
                folder = self._projected(volume["configMap"]["name"])
            yield f"--volume={folder}:{mount['mountPath']}{':ro' if mount.get('readOnly') else ''}"

    def _projected(self, name: str) -> Path:
        """Write a ConfigMap's files, each a link over a link, so that all of them change at once."""
        folder = self._folder / name
        (folder / "..first").mkdir(parents=True)
        (folder / "..data").symlink_to("..first")
        for file, text in self._objects["ConfigMap", name]["data"].items():
            (folder / "..first" / file).write_text(text, encoding="utf-8")
            (folder / file).symlink_to(f"..data/{file}")
        return folder

    def probe(self, which: str) -> int:
        """Return the status of a probe; 0 if nothing listens."""
        request = self._container[f"{which}Probe"]["httpGet"]
        return self.request(ports_of(self._deployment)[request["port"]], request["path"])[0]

    def request(self, port: int, path: str, user_and_password: str = "") -> tuple[int, bytes]:
        """Return status and body of a page, over the pod's first network."""
        addresses = "{{range .NetworkSettings.Networks}}{{.IPAddress}} {{end}}"
        address = self._engine.podman("inspect", f"--format={addresses}", self.name).split()[0]
        credentials = base64.b64encode(user_and_password.encode()).decode()
        headers = {"Authorization": f"Basic {credentials}"} if credentials else {}
        with self._engine.network():
            connection = http.client.HTTPConnection(address, port, timeout=MAX_WAIT_SECONDS)
            try:
                connection.request("GET", path, headers=headers)
                answer = connection.getresponse()
                return answer.status, answer.read()
            except (ConnectionError, TimeoutError):
                return 0, b""
            finally:
                connection.close()

    def stop(self) -> None:
        """Stop the pod as a kubelet does, by SIGTERM; AssertionError with its log unless it ends well in its time."""
        self._engine.podman("stop", self.name)
        state = self._engine.podman("inspect", "--format={{.State.ExitCode}} {{.State.OOMKilled}}", self.name)
        assert state == "0 false", f"{state}\n{self._engine.run('podman', 'logs', '--timestamps', self.name).stderr}"


def _confinement(context: dict[str, Any]) -> Iterator[str]:
    assert context["seccompProfile"] == {"type": "RuntimeDefault"}  # which is the engine's default
    assert context["runAsNonRoot"]
    assert context["runAsUser"] != 0
    yield f"--user={context['runAsUser']}:{context['runAsGroup']}"
    for capability in context["capabilities"]["drop"]:
        yield f"--cap-drop={capability}"
    if not context["allowPrivilegeEscalation"]:
        yield "--security-opt=no-new-privileges"
    if context["readOnlyRootFilesystem"]:
        yield from ("--read-only", "--read-only-tmpfs=false")
