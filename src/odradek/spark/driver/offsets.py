"""Read and write offsets as Spark journals them: JSON with the ids of the cluster and topics.

In: the JSON of a checkpoint (of this source, or as the JVM connector writes it) or of an option.
Out: `StreamOffset` and its one canonical JSON. Must not: access a cluster.

This source writes `{"v":1,"cluster":"…","o":{"t":{"0":5}},"id":{"t":"uuid"},"epoch":{"t":{"0":3}},
"from":{"t":{"0":2}}}`. Spark compares offsets as *strings*, so topics are sorted by name and
partitions by number, and an epoch only changes with its position: otherwise each election would
plan an empty batch. `from` is only set if the start of a batch can't be read from the offset before
it: in the first batch (startingOffsets, resolved once), for partitions that were added, and after
a loss. It makes replays exact.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from odradek.common.arguments import INT32_MAX
from odradek.common.types import TopicPartition
from odradek.spark.checkpoint_errors import OptionError

VERSION = 1
LATEST, EARLIEST = -1, -2
"""Values for the ends of a partition in the JSON of startingOffsets and endingOffsets."""

SENTINEL: dict[str, Any] = {"v": VERSION, "init": True}
"""Result of `initialOffset()`: nothing has been resolved yet.

Spark may request the initial offset again after a restart, and a Python source can't store one. So
the first *end* offset, which Spark journals, contains the resolved start in `from`.
"""

Positions = Mapping[TopicPartition, int]


@dataclass(frozen=True, slots=True)
class StreamOffset:
    """Next offset of each partition, with the ids of the cluster and the topics."""

    positions: Positions
    cluster: str | None = None
    """Id of the cluster; None if the offset was written by the JVM connector or an option."""
    topic_ids: Mapping[str, str] = field(default_factory=dict)
    begins: Positions = field(default_factory=dict)
    """Start of the batch that ends here, for partitions that the previous offset lacks."""
    epochs: Positions = field(default_factory=dict)
    """Epochs of the leaders whose logs had all offsets before the positions, as far as known."""

    def to_json(self) -> dict[str, Any]:
        """Return canonical JSON: equal offsets have equal text."""
        found: dict[str, Any] = {"v": VERSION, "cluster": self.cluster}
        found["o"] = positions_to_json(self.positions)
        found["id"] = {topic: self.topic_ids[topic] for topic in sorted(self.topic_ids)}
        if self.epochs:
            found["epoch"] = positions_to_json(self.epochs)
        if self.begins:
            found["from"] = positions_to_json(self.begins)
        return found


def positions_to_json(positions: Positions) -> dict[str, dict[str, int]]:
    """Return offsets nested by topic and partition, sorted."""
    found: dict[str, dict[str, int]] = {}
    for tp in sorted(positions):
        found.setdefault(tp.topic, {})[str(tp.partition)] = positions[tp]
    return found


def positions_from_json(
    nested: Any, where: str, *, least: int = 0, most: int = (1 << 63) - 1, what: str = "an offset"
) -> dict[TopicPartition, int]:
    """Read `{"topic": {"0": 5}}`; `where` names the option or checkpoint in errors."""
    found: dict[TopicPartition, int] = {}
    if not isinstance(nested, dict):
        raise OptionError(f'{where}: expected JSON like {{"topic":{{"0":5}}}}, got {nested!r:.80}')
    for topic, partitions in nested.items():
        if not isinstance(partitions, dict):
            raise OptionError(
                f'{where}: topic {topic!r} needs an object like {{"0":5}} with a value for each '
                f"partition, not {partitions!r:.80}"
            )
        for number, offset in partitions.items():
            # isdecimal alone accepts digits of other scripts, and int() accepts "00".
            if not (number.isascii() and number.isdecimal()) or number != str(int(number)):
                raise OptionError(f"{where}: {number!r} isn't a partition number (topic {topic!r})")
            whole = isinstance(offset, int) and not isinstance(offset, bool)
            if not (whole and least <= offset <= most):
                raise OptionError(f"{where}: {offset!r} isn't {what} (partition {topic}-{number})")
            found[TopicPartition(topic, int(number))] = offset
    return found


def is_own(document: Mapping[str, Any]) -> bool:
    """Return whether this JSON was written by this source: then `v` is a number, not a topic."""
    return isinstance(document.get("v"), int)


def parse_offset(document: Any) -> StreamOffset | None:
    """Read an offset from Spark's checkpoint; None for the initial placeholder.

    The JVM connector's JSON is accepted, so a query can continue from its checkpoint.
    """
    if not isinstance(document, dict):
        raise OptionError(f"the checkpoint contains {document!r:.80}, which isn't an offset")
    if not is_own(document):
        return StreamOffset(positions_from_json(document, "checkpoint"))
    if document["v"] != VERSION:
        raise OptionError(
            "the checkpoint was written by a different release of Odradek (offset version "
            f"{document['v']}; this release reads version {VERSION})"
        )
    if document.get("init"):
        return None
    found, epoch = positions_from_json(document.get("o"), "checkpoint"), document.get("epoch")
    epochs = positions_from_json(epoch or {}, "checkpoint", most=INT32_MAX, what="a leader epoch")
    if strange := sorted(epochs.keys() - found):
        raise OptionError(f"the checkpoint has a leader epoch but no offset of {strange[0]}")
    return StreamOffset(
        found,
        document.get("cluster"),
        _topic_ids(document.get("id") or {}),
        positions_from_json(document.get("from") or {}, "checkpoint"),
        epochs,
    )


def _topic_ids(given: Any) -> dict[str, str]:
    """Check the topic ids of a checkpoint: UUIDs by topic name."""
    if not isinstance(given, dict):
        raise OptionError(f"the checkpoint contains {given!r:.80}, which aren't topic ids")
    for topic, text in given.items():
        try:
            UUID(text)
        except (ValueError, AttributeError, TypeError):
            raise OptionError(
                f"the checkpoint contains {text!r:.80}, which isn't a topic id (topic {topic!r})"
            ) from None
    return given
