"""Test the strategies that name the subject under which a schema is registered."""

from __future__ import annotations

import pytest

from odradek import ConfigurationError
from odradek.errors import SerializationError
from odradek.serialization import MessageField, SerializationContext
from odradek.serialization.registry.subjects import STRATEGIES, strategy

CONTEXT = SerializationContext("t", MessageField.KEY)


@pytest.mark.parametrize(
    ("name", "subject"),
    [
        ("TOPIC", "t-key"),
        ("RECORD", "a.B"),
        ("TOPIC_RECORD", "t-a.B"),
        ("io.confluent.kafka.serializers.subject.TopicRecordNameStrategy", "t-a.B"),
    ],
)
def test_named_strategies_build_the_subject_from_topic_and_record_name(
    name: str, subject: str
) -> None:
    assert strategy("subject.name.strategy", name)(CONTEXT, "a.B") == subject


def test_a_function_can_be_a_subject_name_strategy() -> None:
    assert strategy("x", lambda context, name: "mine")(CONTEXT, None) == "mine"


@pytest.mark.parametrize("given", ["os.system", "", 5, None])
def test_an_unknown_subject_name_strategy_is_rejected(given: object) -> None:
    with pytest.raises(ConfigurationError, match="TOPIC_RECORD"):
        strategy("subject.name.strategy", given)


def test_a_missing_topic_or_record_name_is_an_error() -> None:
    for name in ("TOPIC", "TOPIC_RECORD"):
        with pytest.raises(SerializationError, match="with the topic"):
            STRATEGIES[name](None, "a.B")
    for name in ("RECORD", "TOPIC_RECORD"):
        with pytest.raises(SerializationError, match="no record name"):
            STRATEGIES[name](CONTEXT, None)


def test_a_context_without_a_topic_is_an_error() -> None:
    with pytest.raises(SerializationError, match="not SerializationContext without topic"):
        STRATEGIES["TOPIC"](SerializationContext(None, MessageField.KEY), "a.B")  # type: ignore[arg-type]  # a program's slip
