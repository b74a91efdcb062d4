"""The two clusters of a copy: settings of their clients, and the topic in each.

In: the command's flags. Out: configurations of clients. Must not: create clients.
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
"""Value that disables the timeout for a first broker; other timeouts apply."""
OPTION_CLIENTS = {one.name: one.clients for group in GROUPS.values() for one in group}
"""Kinds of clients that have an option, by its name."""
OF_THE_SOURCE = (BOOTSTRAP, COMMAND_CONFIG, PROFILE)
"""Environment variables for the source, ignored for a destination with its own flags."""


@dataclass(frozen=True, slots=True)
class CopyCluster:
    """Topic and cluster that a copy reads or writes."""

    topic: str
    flags: Flags
    environment: Mapping[str, str]

    def options(self, client: str) -> dict[str, Any]:
        """Return a client's options, combined as in every command.

        Options that apply only to other kinds of clients are left out.
        """
        return self._settings(client).given

    @property
    def servers(self) -> str:
        """Bootstrap servers."""
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
            found.checked(client)  # the error names a wrong setting's line in the profile
        return found

    def admin(self) -> dict[str, Any]:
        """Return the options of an admin client."""
        given = self.options(ADMIN)
        checked(ADMIN, given)
        return given

    def consumer(self) -> dict[str, Any]:
        """Return the options of the source's consumer, which skips aborted records.

        Consumer and producer are created after the admin clients have reached both clusters. If
        they reach no broker, that is an outage and not a wrong address, so they wait.
        """
        given = self.options(CONSUMER)
        given.setdefault("isolation.level", "read_committed")
        given.setdefault(FIRST_CONTACT, LONGEST_TIMEOUT_MS)
        given.pop("group.id", None)
        given["auto.offset.reset"] = "none"  # an error reports deleted records
        checked(CONSUMER, given)
        return given

    def producer(self, transactional_id: str | None) -> dict[str, Any]:
        """Return the producer's options; without a transactional id it has no transactions.

        A call waits for buffer memory as long as a record may be retried.
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

    If no flag names the destination's cluster, the source's cluster and settings are used,
    overridden by `--to-command-property`. The environment variables are for the source.
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
