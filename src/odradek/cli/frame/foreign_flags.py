"""Hints for flags of Kafka's tools and of kcat that have other names here.

In: a flag that a command doesn't have, and the command. Out: a sentence, or None. Must not: accept
the flag, because each option has only one name.
"""

from __future__ import annotations

import re
from typing import Any

_ADDRESSES = re.compile(r"[\w.\[\]:-]+:\d{1,5}(,[\w.\[\]:-]+:\d{1,5})*")
KEYS = "--reader-property parse.key=true --reader-property key.separator=…"
KCAT = {
    "-b": "--bootstrap-server",
    "-t": "--topic",
    "-p": "--partition",
    "-o": "--offset",
    "-G": "--group",
    "-J": "--json",
    "-X": "--command-property",
    "-F": "--command-config",
}
"""Our flags by kcat's letters; used if the command has the flag."""
KAFKA = {
    "--add-config": "--set",
    "--delete-config": "--delete",
    "--execute": "--yes",
}
"""Our flags by flags of Kafka's tools; used if the command has the flag."""
VERBS = {"--add": "create", "--remove": "delete", "--reset": "reset-offsets"}
"""Our subcommands by flags of Kafka's tools; used if the command has the subcommand."""
ARGUMENTS = {
    "--topic": "TOPIC",
    "--group": "GROUP",
    "--entity-type": "KIND",
    "--entity-name": "NAME",
    "--transactional-id": "ID",
    "-t": "TOPIC",
}
"""Our arguments (beginnings of their names in the help) by flags of Kafka's tools."""
OF_COMMANDS = {
    ("topics alter", "--partitions"): "to add partitions, use odradek topics create-partitions",
    ("topics alter", "--config"): "use --set KEY=VALUE",
    ("groups lag", "--all-groups"): "leave GROUP out for all groups",
    ("groups describe", "--all-groups"): "leave GROUP out for all groups",
    ("groups members", "--all-groups"): "leave GROUP out for all groups",
    ("groups describe", "--members"): "use odradek groups members",
    ("groups describe", "--offsets"): "offsets are shown by default",
    ("consume", "-C"): "leave it out, odradek consume always reads",
    ("consume", "-P"): "use odradek produce to write",
    ("consume", "-K"): "use --formatter-property print.key=true",
    ("produce", "-P"): "leave it out, odradek produce always writes",
    ("produce", "-C"): "use odradek consume to read",
    ("produce", "-K"): f"use {KEYS}",
    ("produce", "--key-separator"): f"use {KEYS}",
    ("demo", "--versus"): "to compare clients under the same faults, run make scorecard in a clone",
}


def instead(flag: str, command: Any, typed: str) -> str | None:
    """Return what to type instead of an unknown flag, in a few words.

    `command` is Click's object, `typed` the command without the program: "topics describe".
    """
    if (typed, flag) in OF_COMMANDS:
        return OF_COMMANDS[typed, flag]
    verbs = getattr(command, "commands", None)
    if verbs is not None:
        verb = VERBS.get(flag, flag.removeprefix("--"))
        return f"{verb} is a subcommand: odradek {typed} {verb}" if verb in verbs else None
    here = {name for one in command.params for name in one.opts if name.startswith("-")}
    meant = KCAT.get(flag) or KAFKA.get(flag)
    if meant in here:
        return f"use {meant}"
    for one in command.params:
        named = (one.metavar or "").split("[")[0]
        if one.param_type_name == "argument" and named and named == ARGUMENTS.get(flag):
            return f"{named} is given without a flag: odradek {typed} {named}"
    return None


def needed_flag(command: Any, words: str) -> str | None:
    """Return a hint for arguments without a flag, if brokers or topics need a flag."""
    brokers = [word for word in words.split() if _ADDRESSES.fullmatch(word)]
    if brokers and any("--bootstrap-server" in one.opts for one in command.params):
        return f"for brokers use --bootstrap-server {brokers[0]}"
    arguments = any(one.param_type_name == "argument" for one in command.params)
    topic = any("--topic" in one.opts for one in command.params)
    return f"a topic needs its flag: --topic {words}" if topic and not arguments else None
