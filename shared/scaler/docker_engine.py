"""Replicas of a compose service in a Docker engine: counted, added and removed as compose itself would.

Containers are found by compose's labels. A new one is the newest one's configuration with a number, a name and
addresses of its own, so `docker compose ps`, `up --no-recreate` and `down` know it.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

from shared.errors import Misconfigured, TransientError

try:
    import docker
    from docker.errors import APIError, DockerException
except ImportError:  # the extra `scaler` is not installed
    docker = None

LABEL = "com.docker.compose."
STOP_S = 10
"""Docker's own grace time, where a container names none."""


class Engine:
    """The services of one compose project. Its methods block, and raise Misconfigured or TransientError."""

    def __init__(self, project: str) -> None:
        if docker is None:
            raise Misconfigured("the Docker SDK is not installed: pip install 'cairn[scaler]'")
        self.project = project
        try:
            self._client = docker.from_env()
        except (DockerException, OSError) as error:
            raise Misconfigured(f"no Docker engine that this user may ask (DOCKER_HOST names one): {error}") from error

    def close(self) -> None:
        """Give its connections up."""
        self._client.close()

    def count(self, service: str) -> int:
        """Replicas that run, or are being restarted."""
        with _told():
            return len(self._running(service))

    def scale(self, service: str, replicas: int) -> int:
        """Add or remove until there are `replicas` (at least 1); answers how many there were.

        Those with the highest numbers go, at the same time, each with the time that its container gives it to finish
        what is in hand. Adding stops at the first one that does not start.
        """
        with _told():
            running = self._running(service)
            if not running:
                raise Misconfigured(
                    f"no container of {service} runs in the compose project {self.project}: "
                    "start it with `docker compose up -d`, or name the project (CAIRN_SCALER_PROJECT)"
                )
            leaving = running[replicas:]
            with ThreadPoolExecutor(max_workers=max(1, len(leaving))) as threads:
                list(threads.map(_remove, leaving))
            for _ in range(replicas - len(running)):
                self._add(running[-1])
            return len(running)

    def _running(self, service: str) -> list[Any]:
        # By what each one says: the engine's list may still show one as running that has just been stopped.
        return [each for each in self._containers(service) if each.status in ("running", "restarting")]

    def _containers(self, service: str) -> list[Any]:
        labels = [f"{LABEL}project={self.project}", f"{LABEL}service={service}", f"{LABEL}oneoff=False"]
        found = self._client.containers.list(all=True, filters={"label": labels}, ignore_removed=True)
        return sorted(found, key=_number)

    def _add(self, like: Any) -> None:
        service = like.labels[f"{LABEL}service"]
        number = 1 + _number(self._containers(service)[-1])
        name = f"{self.project}-{service}-{number}"
        # The image by its id: a tag may have moved on, and replicas of a service run the same code.
        config = like.attrs["Config"] | {"Image": like.attrs["Image"], "HostConfig": like.attrs["HostConfig"]}
        del config["Hostname"]  # the other container's id
        config["Labels"] = config["Labels"] | {f"{LABEL}container-number": str(number)}
        others = set(like.attrs["NetworkSettings"]["Networks"])
        first, aliases = config["HostConfig"]["NetworkMode"], [name, service]
        if first in others:
            config["NetworkingConfig"] = {"EndpointsConfig": {first: {"Aliases": aliases}}}
        api = self._client.api
        created = api.create_container_from_config(config, name=name)["Id"]
        try:
            for network in others - {first}:  # engines before 25 take no more than one at creation
                api.connect_container_to_network(created, network, aliases=aliases)
            api.start(created)
        except APIError:
            api.remove_container(created, force=True, v=True)
            raise


@contextmanager
def _told() -> Iterator[None]:
    try:
        yield
    except (DockerException, OSError) as error:
        raise TransientError(f"Docker: {error}") from error


def _number(container: Any) -> int:
    return int(container.labels[f"{LABEL}container-number"])


def _remove(container: Any) -> None:
    container.stop(timeout=container.attrs["Config"].get("StopTimeout") or STOP_S)
    container.remove(v=True)
