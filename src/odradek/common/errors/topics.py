"""Define the error of operations on a topic that was deleted and created again.

In: the topic's former and current id, if brokers support ids (KIP-516). Out: an exception class.
Must not: look up metadata.
"""

from __future__ import annotations

from odradek.common.errors.kafka import UnknownTopicIdError
from odradek.common.printable import printable, uuid_text
from odradek.common.types import TopicPartition


class TopicRecreatedError(UnknownTopicIdError):
    """The topic was deleted and created again after the operation began.

    `read_id` is the id of the deleted topic, `current_id` that of the new topic; each is None if
    unknown. `maybe_stored` is true if the commit may have been stored, for either topic. Offsets of
    a deleted topic can't be used; `poll()` continues with the new topic.
    """

    retriable = refresh_metadata = False

    def __init__(
        self,
        partition: TopicPartition,
        what: str,
        read_id: str | None = None,
        current_id: str | None = None,
        maybe_stored: bool = False,
        outcome: str = "",
    ) -> None:
        """Create the error; `outcome` describes the result if the operation isn't a commit."""
        given = partition, what, read_id, current_id, maybe_stored, outcome
        super().__init__(*given)  # arguments as given, for copies and pickles
        self.partition, self.what = partition, what
        self.read_id, self.current_id = read_id, current_id
        self.maybe_stored = maybe_stored
        self.outcome = outcome

    def __str__(self) -> str:
        ids = ""
        if self.read_id is not None:
            now = "" if self.current_id is None else f", now {self.current_id}"
            ids = f" (its topic id was {self.read_id}{now})"
        outcome = f"Nothing was stored for {self.partition}."
        if self.maybe_stored:
            outcome = (
                "The request identified the topic by name, so the offset may have been stored "
                "for the new topic."
            )
        outcome = self.outcome or (
            f"{outcome} The deleted records are gone: continue with poll(), which reads the new "
            "topic from its beginning."
        )
        topic = self.partition.topic
        return printable(
            f"{self.what}: topic {topic} was deleted and created again{ids}. {outcome}"
        )


def topic_id_text(topic_id: bytes) -> str | None:
    """Return a topic id as a UUID in text form; None for an absent id."""
    if not any(topic_id):
        return None
    return uuid_text(bytes(topic_id))
