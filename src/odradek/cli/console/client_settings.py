"""Client settings of a console tool, from its flags, including older names of flags.

In: the parameters of `odradek consume` or `odradek produce`. Out: settings with Kafka's names,
combined as for all commands (`cli.frame.settings`). Must not: connect.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from odradek.cli.console.properties import one_of
from odradek.cli.console.waiting import say
from odradek.cli.frame.settings import Flags, client_settings


def client_config(
    params: Mapping[str, Any],
    *,
    tool: str,
    flags: Mapping[str, str],
    environment: Mapping[str, str] = os.environ,
) -> dict[str, Any]:
    """Return a client's settings; flags override properties, the file and the profile.

    `tool` is "producer" or "consumer"; `flags` maps parameters to the options that they set. An
    unsafe profile is reported on stderr. Raises `UsageError`.
    """
    path, _ = one_of(params, "command_config", f"{tool}_config")
    words, spelling = one_of(params, "command_property", f"{tool}_property")
    own = {
        option: str(params[parameter])
        for parameter, option in flags.items()
        if params.get(parameter) is not None
    }
    usual = {"client.id": f"console-{tool}"}
    given = Flags(None, path, tuple(words or ()), params.get("profile"), spelling=spelling)
    found = client_settings(given, tool, usual, own, environment=environment)
    if found.profile.settings:
        found.checked(tool)  # the error names a wrong setting's line in the profile
    if found.profile.warning:
        say(found.profile.warning)
    return found.given
