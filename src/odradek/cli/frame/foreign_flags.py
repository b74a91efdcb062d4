"""Flags of Kafka's tools and of kcat that are named otherwise here: what to type instead.

In: a flag that a command doesn't have, and the command. Out: a sentence, or none. Must not: take
the flag; there is one spelling of each thing.
"""

from __future__ import annotations

from typing import Any

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
"""kcat's letters, where a command has what they mean."""
KAFKA = {
    "--add-config": "--set",
    "--delete-config": "--delete",
    "--execute": "--yes",
}
"""Flags of Kafka's tools, where a command has what they mean."""
VERBS = {"--add": "create", "--remove": "delete", "--reset": "reset-offsets"}
"""Verbs of Kafka's tools, where a command has what they mean."""
ARGUMENTS = {
    "--topic": "TOPIC",
    "--group": "GROUP",
    "--entity-type": "KIND",
    "--entity-name": "NAME",
    "--transactional-id": "ID",
    "-t": "TOPIC",
}
"""What is an argument here, by the beginning of its name in the help."""
OF_COMMANDS = {
    ("topics alter", "--partitions"): "odradek topics create-partitions gives topics more of them",
    ("topics alter", "--config"): "give --set KEY=VALUE",
    ("groups lag", "--all-groups"): "without a GROUP all of them are meant",
    ("groups describe", "--all-groups"): "without a GROUP all of them are meant",
    ("groups members", "--all-groups"): "without a GROUP all of them are meant",
    ("groups describe", "--members"): "odradek groups members shows them",
    ("groups describe", "--offsets"): "offsets are shown without it",
    ("consume", "-C"): "odradek consume reads without it",
    ("consume", "-P"): "odradek produce writes",
    ("consume", "-K"): "give --formatter-property print.key=true",
    ("produce", "-P"): "odradek produce writes without it",
    ("produce", "-C"): "odradek consume reads",
    ("produce", "-K"): f"give {KEYS}",
    ("produce", "--key-separator"): f"give {KEYS}",
    ("demo", "--versus"): "make scorecard, in a clone, compares clients through the same faults",
}


def instead(flag: str, command: Any, typed: str) -> str | None:
    """What to type instead of a flag that isn't there, in a few words.

    `command` is Click's, `typed` how it is called, without the program: "topics describe".
    """
    if (typed, flag) in OF_COMMANDS:
        return OF_COMMANDS[typed, flag]
    verbs = getattr(command, "commands", None)
    if verbs is not None:
        verb = VERBS.get(flag, flag.removeprefix("--"))
        return f"it is a command: odradek {typed} {verb}" if verb in verbs else None
    here = {name for one in command.params for name in one.opts if name.startswith("-")}
    meant = KCAT.get(flag) or KAFKA.get(flag)
    if meant in here:
        return f"give {meant}"
    for one in command.params:
        named = (one.metavar or "").split("[")[0]
        if one.param_type_name == "argument" and named and named == ARGUMENTS.get(flag):
            return f"{named} is given without a flag: odradek {typed} {named}"
    return None


def needed_flag(command: Any, words: str) -> str | None:
    """Which flag words need that stand alone, where a command takes topics by a flag only."""
    arguments = any(one.param_type_name == "argument" for one in command.params)
    topic = any("--topic" in one.opts for one in command.params)
    return f"a topic needs its flag: --topic {words}" if topic and not arguments else None
