"""The two clusters of a copy: how each is reached, and which topic is meant there.

In: the command's flags. Out: configurations of clients. All options of connections are read here.
Must not: open anything.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from odradek.cli.console.properties import refuse
from odradek.cli.console.waiting import checked
from odradek.cli.frame.settings import (
    BOOTSTRAP,
    COMMAND_CONFIG,
    PROFILE,
    ClientSettings,
    Flags,
    client_settings,
)
from odradek.clients.bootstrap_timeout import FIRST_CONTACT
from odradek.common.config import ADMIN, CONSUMER, PRODUCER
from odradek.common.options.option_aliases import ALIASES, dotted
from odradek.common.options.table import GROUPS

CLIENT_ID = "odradek-copy"
LONGEST_TIMEOUT_MS = str(2**31 - 1)
"""Milliseconds for a first broker: other timeouts apply."""
OPTION_CLIENTS = {one.name: one.clients for group in GROUPS.values() for one in group}
"""Whose each option is."""
OF_THE_SOURCE = (BOOTSTRAP, COMMAND_CONFIG, PROFILE)
"""Variables that a destination of its own doesn't have."""


@dataclass(frozen=True, slots=True)
class CopyCluster:
    """Where a copy comes from, or goes to."""

    topic: str
    flags: Flags
    environment: Mapping[str, str]

    def options(self, client: str) -> dict[str, Any]:
        """Return a client's options, combined as in every command.

        Options that are only for other kinds of clients are left out, as for a file.
        """
        return self._settings(client).given

    @property
    def servers(self) -> str:
        """Where its clients start."""
        return self._settings(ADMIN).servers

    @property
    def warning(self) -> str:
        """Return a warning about an unsafe profile, else an empty text."""
        return self._settings(ADMIN).profile.warning

    def _settings(self, client: str) -> ClientSettings:
        words = tuple(word for word in self.flags.command_property if _is_for(client, word))
        found = client_settings(
            replace(self.flags, command_property=words),
            client,
            {"client.id": CLIENT_ID},
            environment=self.environment,
        )
        if found.profile.settings:
            found.checked(client)  # here, where the line that is wrong is known
        return found

    def admin(self) -> dict[str, Any]:
        """Options of an admin client."""
        given = self.options(ADMIN)
        checked(ADMIN, given)
        return given

    def consumer(self) -> dict[str, Any]:
        """Options of the source's consumer: what was aborted isn't copied.

        It and the producer start after the admin clients have reached both clusters, so a broker
        that they can't reach is an outage and not a wrong address.
        """
        given = self.options(CONSUMER)
        given.setdefault("isolation.level", "read_committed")
        given.setdefault(FIRST_CONTACT, LONGEST_TIMEOUT_MS)
        given.pop("group.id", None)
        given["auto.offset.reset"] = "none"  # a gap must be told
        checked(CONSUMER, given)
        return given

    def producer(self, transactional_id: str | None) -> dict[str, Any]:
        """Options of the destination's producer; without an id it has no transactions.

        A call waits as long as a record is tried: a full buffer is no reason to give up before.
        """
        given = self.options(PRODUCER)
        given.pop("transactional.id", None)
        given["enable.idempotence"] = "true"
        if transactional_id is not None:
            given["transactional.id"] = transactional_id
        config = checked(PRODUCER, given)
        given.setdefault("max.block.ms", str(int(config["delivery.timeout.ms"] * 1000)))
        given.setdefault(FIRST_CONTACT, LONGEST_TIMEOUT_MS)
        return given


def sides(
    params: Mapping[str, Any], environment: Mapping[str, str] = os.environ
) -> tuple[CopyCluster, CopyCluster]:
    """Return source and destination, from the flags.

    If no flag names the destination's cluster, it is the source's: with all settings of the source,
    and `--to-command-property` over them. The environment is for the source.
    """
    source = CopyCluster(params["source"], _flags(params, "from"), environment)
    to = _flags(params, "to")
    own = any((to.bootstrap_server, to.command_config, to.profile))
    if own:
        bare = {name: one for name, one in environment.items() if name not in OF_THE_SOURCE}
        destination = CopyCluster(params["destination"], to, bare)
    else:
        words = (*source.flags.command_property, *to.command_property)
        flags = replace(source.flags, command_property=words, spelling=to.spelling)
        destination = CopyCluster(params["destination"], flags, environment)
    if source.topic == destination.topic and source.servers == destination.servers:
        refuse(f"{source.topic} can't be copied onto itself")
    return source, destination


def _flags(params: Mapping[str, Any], side: str) -> Flags:
    return Flags(
        params.get(f"{side}_bootstrap_server"),
        params.get(f"{side}_command_config"),
        tuple(params.get(f"{side}_command_property") or ()),
        params.get(f"{side}_profile"),
        spelling=f"--{side}-command-property",
    )


def _is_for(client: str, word: str) -> bool:
    name = dotted(word.partition("=")[0])
    clients = OPTION_CLIENTS.get(ALIASES.get(name, name))
    return clients is None or client in clients
