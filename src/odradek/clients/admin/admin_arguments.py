"""What a caller may give to an admin client: topics to make, and names of topics.

In: whatever was given. Out: `NewTopic`s and names that can be sent as they are. Must not: know what
a cluster allows; brokers say that.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from odradek.clients.client_engine import check_topic
from odradek.common.arguments import (
    INT32_MAX,
    iterable,
    mapping,
    names,
    refusal,
    text,
    topic_name,
    whole_number,
)
from odradek.common.errors import ConfigurationError

INT16_MAX = 2**15 - 1


@dataclass(frozen=True, slots=True)
class NewTopic:
    """A topic to make; -1 takes the broker's default. `configs` have Kafka's names."""

    name: str
    num_partitions: int = -1
    replication_factor: int = -1
    configs: Mapping[str, str] = field(default_factory=dict)


def new_topics(given: Any) -> list[NewTopic]:
    """Read the topics of `create_topics`."""
    if isinstance(given, NewTopic):
        raise refusal("topics", "a list of NewTopic", given, "give a list of it")
    found = [
        _new_topic(position, topic)
        for position, topic in enumerate(iterable("topics", given, "a list of NewTopic"))
    ]
    made = [topic.name for topic in found]
    if len(set(made)) < len(made):
        raise ConfigurationError(f"a topic is named twice in {', '.join(made)}")
    return found


def topic_names(name: str, given: Any) -> list[str]:
    """Read names of topics; a str is one name."""
    found = names(name, given)
    for topic in found:
        check_topic(topic)
    return found


def _new_topic(position: int, given: Any) -> NewTopic:
    place = f"topics[{position}]"
    if not isinstance(given, NewTopic):
        cure = "give NewTopic(name, num_partitions, replication_factor)"
        raise refusal(place, "a NewTopic", given, cure)
    name = topic_name(f"{place}.name", given.name)
    check_topic(name)
    of = f"topic {name!r}"
    configs = mapping(f"configs of {of}", given.configs, "a dict of settings")
    return NewTopic(
        name,
        _or_default(f"num_partitions of {of}", given.num_partitions, INT32_MAX),
        _or_default(f"replication_factor of {of}", given.replication_factor, INT16_MAX),
        {text(f"a setting's name of {of}", k): _setting(k, of, v) for k, v in configs.items()},
    )


def _or_default(name: str, value: Any, most: int) -> int:
    """-1 means the broker's default; the broker refuses 0 and other negative numbers."""
    return whole_number(name, value, -INT16_MAX, most)


def _setting(key: Any, of: str, value: Any) -> str:
    """Brokers take text; numbers and truth values are written as Kafka reads them."""
    name = f"{key} of {of}"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return str(value)
    if isinstance(value, str):
        return text(name, value)
    if hasattr(value, "__index__"):
        return str(whole_number(name, value, -(2**63)))
    raise refusal(name, "a str or a number", value)
