"""Share the clients of schema registries between the tasks of one query in a worker process.

In: the query's key, which is created with its options, and the settings. Out: a client. A new query
starts with a new client, because the registry may have been recreated since. Must not: connect.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from odradek.runtime.system_clock import SystemClock
from odradek.serialization import SchemaRegistryClient

MOST = 32
"""Maximum number of queries whose clients a process keeps."""
_clients: dict[tuple[int, str], SchemaRegistryClient] = {}


def query_key() -> str:
    """Return a key for the format of one column of one query."""
    return f"{os.getpid()}-{SystemClock().now()}"


def shared_client(key: str, settings: Mapping[str, Any]) -> SchemaRegistryClient:
    """Return the client of all tasks with this key in this process."""
    mine = (os.getpid(), key)  # a forked child needs its own: inherited locks may be held
    found = _clients.get(mine)
    if found is None:
        while len(_clients) >= MOST:
            _clients.pop(next(iter(_clients)), None)
        found = _clients.setdefault(mine, SchemaRegistryClient(settings))
    return found
