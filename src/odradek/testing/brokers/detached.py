"""Keep a `LocalCluster` open in a process of its own after the command that started it has ended.

In: the cluster's options as JSON on standard input, from `odradek cluster start` (they may contain
passwords, and every user can see command lines). Out: a state file with the cluster's address,
until SIGTERM ends the process. Must not: be found in another way than by its state file, or trust a
pid in that file without the start time, because pids are reused.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import threading
from pathlib import Path
from typing import Any

from odradek.runtime.private_files import home_directory
from odradek.testing.local_cluster import LocalCluster
from odradek.testing.registry import LocalRegistry


def state_directory() -> Path:
    """Return the directory for state in the user's home; it may not exist yet."""
    base = os.environ.get("XDG_STATE_HOME", "")
    root = (
        Path(base) if base and Path(base).is_absolute() else home_directory() / ".local" / "state"
    )
    return root / "odradek"


def state_file() -> Path:
    """Return the file with the state of this user's detached cluster."""
    return state_directory() / "cluster.json"


def start_time(pid: int) -> str | None:
    """Return a process's start time, or None if the process ended.

    The start time distinguishes the process from a later one with the same pid.
    """
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return None
    # The second field is the process name in brackets, with any characters; the 22nd is the start
    # time.
    fields = text[text.rindex(")") + 2 :].split()
    if fields[0] == "Z":
        return None  # a zombie process, which has ended
    return f"{boot}:{fields[19]}"


def read_state() -> dict[str, Any] | None:
    """Return the state of a running detached cluster; if the cluster ended, remove the file."""
    path = state_file()
    try:
        state: dict[str, Any] = json.loads(path.read_text())
    except FileNotFoundError:
        return None
    except ValueError:  # incomplete, so `write_state` hasn't written it
        state = {}
    if state and start_time(state["pid"]) == state["start_time"]:
        return state
    path.unlink(missing_ok=True)
    return None


def write_state(state: dict[str, Any]) -> None:
    """Replace the state file atomically."""
    path = state_file()
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.write_text(json.dumps(state, indent=2) + "\n")
    temporary.replace(path)


def describe(cluster: LocalCluster, registry: LocalRegistry | None = None) -> dict[str, Any]:
    """Return an open cluster's state for the state file."""
    pids = cluster.pids()
    return {
        "schema_registry_url": None if registry is None else registry.url,
        "pid": os.getpid(),
        "start_time": start_time(os.getpid()),
        "bootstrap_servers": cluster.bootstrap_servers,
        "cluster_id": cluster.cluster_id,
        "version": cluster.version,
        "directory": str(cluster.directory),
        "security": cluster.security,
        "client_properties": {
            user: str(cluster.java_properties(user)) for user in cluster.client_names
        },
        "brokers": [
            {"id": i, "address": address, "pid": pids.get(i), "start_time": start_time(pids[i])}
            for i, address in enumerate(cluster.broker_addresses)
            if i in pids
        ],
    }


def main() -> None:
    """Keep a cluster open until SIGTERM or SIGINT; print `up` or an error to standard output."""
    options = json.loads(sys.stdin.read())
    done = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: done.set())
    directory, with_registry = options.pop("directory"), options.pop("registry", False)
    try:
        cluster = LocalCluster(
            **options, directory=Path(directory) if directory else None, report=_say
        )
        registry = LocalRegistry(report=_say) if with_registry else None
        with cluster, registry or contextlib.nullcontext():
            write_state(describe(cluster, registry))
            _say("up")
            with contextlib.suppress(OSError):  # the parent process may be gone
                sys.stdout.close()
            done.wait()
    except Exception as error:
        _say(f"failed: {error}")
        sys.exit(1)
    finally:
        state = read_state()
        if state is not None and state["pid"] == os.getpid():
            state_file().unlink(missing_ok=True)


def _say(line: str) -> None:
    with contextlib.suppress(OSError):
        os.write(1, f"{line}\n".encode())


if __name__ == "__main__":
    main()
