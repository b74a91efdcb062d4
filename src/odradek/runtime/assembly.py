"""Assemble a client: its I/O host (thread or event loop), engine, calls, credentials and events.

In: a configuration, a function that creates the engine. Out: the object whose methods are the
client's calls. Must not: open a socket or file, or keep a reference to the client.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from odradek.clients.calls.client_calls import EVENTS_TIMEOUT, ClientCalls
from odradek.clients.client_engine import ClientEngine
from odradek.common.config import Config
from odradek.network.host import Host
from odradek.runtime.hosts.host_sources import host_from_sources
from odradek.runtime.unclosed_clients import OpenClient, opened

if TYPE_CHECKING:
    from odradek.runtime.events.event_topic import EventTopic

E = TypeVar("E", bound=ClientEngine)

EVENTS_DIR = "ODRADEK_EVENTS_DIR"


def assembled(
    client: object,
    config: Config,
    make_host: Callable[[Config], Host],
    build: Callable[[Config, Host], E],
    calls: Callable[..., ClientCalls[E]],
    producer: Callable[[dict[str, Any]], Any],
) -> ClientCalls[E]:
    """Assemble a client on a test's I/O host or a new one; `producer` writes to `events.topic`."""
    kind, directory = type(client).__name__, config["events.dir"]
    host = host_from_sources(config)
    real = host is None
    if host is None:
        directory = directory or os.environ.get(EVENTS_DIR)
        host = make_host(config)
    made = calls(kind, config, host, lambda host: build(config, host))
    if config["security.protocol"].startswith("SASL"):
        from odradek.runtime.credentials.client_mechanism import mechanism

        made.use(mechanism(config, host, real=real))
    if directory:
        from odradek.runtime.events.events_dir import EventFile

        events = EventFile(directory, client=config["client.id"])
        made.listen(events)
        made.close_events.append(lambda timeout: events.close())
    topic: EventTopic | None = None
    if real and config["events.topic"]:
        from odradek.runtime.events.event_topic import EventTopic

        topic = EventTopic(config, producer)
        made.publishes_to(topic)
        made.listen(topic.queue)
        made.close_events.append(topic.queue.close)
    host.attach(made.engine)
    if real:
        timeout = made.close_timeout if made.writes is not None else None
        left_open = OpenClient(kind, config["client.id"], host, made.engine, timeout)
        if topic is not None:
            left_open.end_events = partial(topic.queue.finish, EVENTS_TIMEOUT)
        made.set_unclosed_watch(left_open)
        opened(client, left_open)
    return made
