"""Parse arguments such as `flights:0` and `flights:0=1,2,3`.

In: arguments. Out: partitions, broker ids, changes of options. Must not: check whether they exist.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Annotated

import typer

from odradek.cli.console.properties import parse_values, refuse
from odradek.cli.frame.argument_values import MOST_INT32, whole_number
from odradek.cli.frame.completion import topic_names
from odradek.clients.admin.configs import AlterConfigOp
from odradek.common.types import TopicPartition

TopicNames = Annotated[
    list[str],
    typer.Argument(metavar="TOPIC", help="Topic names.", autocompletion=topic_names),
]
AnyTopicNames = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="TOPIC",
        help="Topic names.",
        show_default="all topics",
        autocompletion=topic_names,
    ),
]


def _change(flag: str, form: str, text: str) -> typer.models.OptionInfo:
    option: typer.models.OptionInfo = typer.Option(flag, metavar=form, help=text)
    return option


SetOptions = Annotated[
    list[str] | None, _change("--set", "KEY=VALUE", "Set an option; may be repeated.")
]
DeleteOptions = Annotated[
    list[str] | None, _change("--delete", "KEY", "Reset an option to its default.")
]
AppendOptions = Annotated[
    list[str] | None, _change("--append", "KEY=VALUE", "Append a value to a list option.")
]
SubtractOptions = Annotated[
    list[str] | None, _change("--subtract", "KEY=VALUE", "Remove a value from a list option.")
]


def option_changes(
    set_: Sequence[str] | None,
    delete: Sequence[str] | None,
    append: Sequence[str] | None,
    subtract: Sequence[str] | None,
) -> list[AlterConfigOp]:
    """Return the flags' changes; raise `UsageError` for none, or for two of the same option."""
    found = [
        AlterConfigOp(name, value, operation)
        for flag, operation, words in (
            ("--set", "SET", set_),
            ("--append", "APPEND", append),
            ("--subtract", "SUBTRACT", subtract),
        )
        for name, value in parse_values(words or (), flag).items()
    ]
    found += [AlterConfigOp(name, None, "DELETE") for name in dict.fromkeys(delete or ())]
    names = [one.name for one in found]
    twice = [name for name in dict.fromkeys(names) if names.count(name) > 1]
    if twice:
        refuse(f"{twice[0]} is changed twice: name each option once")
    if not found:
        refuse("no change is given: use --set KEY=VALUE, --delete, --append or --subtract")
    return found


def changed_words(changes: Iterable[AlterConfigOp]) -> str:
    """Describe changes of options in words."""
    return ", ".join(
        f"{one.operation.lower()} {one.name}" + ("" if one.value is None else f"={one.value}")
        for one in changes
    )


def topic_partition(word: str) -> TopicPartition:
    """Parse a partition such as `flights:0`, the notation of Kafka's tools."""
    topic, _, text = word.rpartition(":")
    number = whole_number(text, MOST_INT32)
    if not topic or number is None:
        refuse(f"expected TOPIC:PARTITION, as in flights:0, not {word!r}")
    return TopicPartition(topic, number)


def replicas(text: str) -> list[int]:
    """Parse broker ids such as `1,2,3`."""
    found = [whole_number(one, MOST_INT32) for one in text.split(",")]
    ids = [one for one in found if one is not None]
    if len(ids) < len(found):
        refuse(f"expected broker ids, as in 1,2,3, not {text!r}")
    return ids


def parted(word: str, form: str) -> tuple[str, str]:
    """Return the parts of an argument before and after its `=`."""
    left, sign, right = word.partition("=")
    if not (left and sign and right):
        refuse(f"expected {form}, not {word!r}")
    return left, right
