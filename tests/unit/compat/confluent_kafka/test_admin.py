"""Test that the admin client rejects what confluent-kafka's rejects, and completes its futures."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from importlib import import_module
from typing import Any

import confluent_kafka
import pytest

import odradek
import odradek.compat.confluent_kafka as ours
from odradek.compat.confluent_kafka import KafkaError, KafkaException, TopicPartition
from odradek.compat.confluent_kafka.admin import AclBindingFilter, AdminClient, NewTopic
from odradek.compat.confluent_kafka.admin.futures import LONGEST

NOWHERE = {"bootstrap.servers": "127.0.0.1:9", "socket.timeout.ms": 100}
PATIENCE = 60.0
ACL_FILTER = AclBindingFilter("any", None, "any", None, None, "any", "any")
LIBRARIES = (ours, confluent_kafka)
Call = Callable[[Any, Any, Any], object]


@pytest.fixture(scope="module")
def clients() -> Iterator[list[tuple[Any, Any, Any]]]:
    """Yield each library, its admin module and an admin client without a reachable broker."""
    modules = [import_module(f"{library.__name__}.admin") for library in LIBRARIES]
    found = [
        (library, m, m.AdminClient(NOWHERE)) for library, m in zip(LIBRARIES, modules, strict=True)
    ]
    yield found
    for _, _, client in found:
        client.__exit__(None, None, None)


def group(library: Any, *partitions: tuple[Any, ...]) -> Any:
    some = [library.TopicPartition(*p) for p in partitions]
    return library.ConsumerGroupTopicPartitions("g", some)


def changes(module: Any, *entries: tuple[Any, Any, Any]) -> list[Any]:
    made = [module.ConfigEntry(n, v, incremental_operation=o) for n, v, o in entries]
    return [module.ConfigResource("topic", "t", incremental_configs=made)]


REFUSED: list[Call] = [
    lambda lib, m, c: m.AdminClient(),
    lambda lib, m, c: m.NewTopic(3),
    lambda lib, m, c: m.NewTopic("t", config=["no", "dict"]),
    lambda lib, m, c: m.NewPartitions(3, 4),
    lambda lib, m, c: m.ConfigResource("nothing", "t"),
    lambda lib, m, c: m.ConfigResource("topic", None),
    lambda lib, m, c: m.AclBinding("topic", None, "literal", "u", "*", "read", "allow"),
    lambda lib, m, c: m.AclBinding("topic", 3, "literal", "u", "*", "read", "allow"),
    lambda lib, m, c: m.AclBinding("any", "t", "literal", "u", "*", "read", "allow"),
    lambda lib, m, c: m.AclBinding("topic", "t", "match", "u", "*", "read", "allow"),
    lambda lib, m, c: m.AclBinding("topic", "t", "literal", "u", "*", "reads", "allow"),
    lambda lib, m, c: m.AclBindingFilter("unknown", None, "any", None, None, "any", "any"),
    lambda lib, m, c: m.OffsetSpec(-9),
    lambda lib, m, c: c.create_topics([]),
    lambda lib, m, c: c.create_topics([m.NewTopic("t")], validate_only="maybe"),
    lambda lib, m, c: c.create_topics([m.NewTopic("t")], request_timeout=-5),
    lambda lib, m, c: c.create_topics([m.NewTopic("t")], request_timeout="5"),
    lambda lib, m, c: c.create_topics([m.NewTopic("t")], request_timeout=1e9),
    lambda lib, m, c: c.create_topics([m.NewTopic("t")], operation_timeout=-4.1),
    lambda lib, m, c: c.create_topics([m.NewTopic("t")], unknown="x"),
    lambda lib, m, c: c.create_topics([m.NewTopic("t", 2, replica_assignment=[[1]])]),
    lambda lib, m, c: c.create_topics([m.NewTopic("t", 1, 1, replica_assignment=[[1]])]),
    lambda lib, m, c: c.create_topics([m.NewTopic("t", 1, replica_assignment="x")]),
    lambda lib, m, c: c.delete_topics(None),
    lambda lib, m, c: c.delete_topics([]),
    lambda lib, m, c: c.delete_topics([None]),
    lambda lib, m, c: c.create_partitions(None),
    lambda lib, m, c: c.create_partitions([m.NewPartitions("t", 0)]),
    lambda lib, m, c: c.describe_topics(["t"]),
    lambda lib, m, c: c.describe_topics(lib.TopicCollection([3])),
    lambda lib, m, c: c.describe_topics(lib.TopicCollection([""])),
    lambda lib, m, c: c.describe_cluster(include_authorized_operations="x"),
    lambda lib, m, c: c.describe_configs([]),
    lambda lib, m, c: c.describe_configs([m.ConfigResource("topic", "")]),
    lambda lib, m, c: c.incremental_alter_configs(None),
    lambda lib, m, c: c.incremental_alter_configs([]),
    lambda lib, m, c: c.incremental_alter_configs(changes(m)),
    lambda lib, m, c: c.incremental_alter_configs(changes(m, ("a", "b", "SET"))),
    lambda lib, m, c: c.incremental_alter_configs(changes(m, (3, "b", m.AlterConfigOpType.SET))),
    lambda lib, m, c: c.incremental_alter_configs(changes(m, ("a", None, m.AlterConfigOpType.SET))),
    lambda lib, m, c: c.alter_configs([]),
    lambda lib, m, c: c.create_acls(None),
    lambda lib, m, c: c.create_acls([]),
    lambda lib, m, c: c.create_acls(["t"]),
    lambda lib, m, c: c.create_acls(
        [m.AclBinding("topic", "t", "literal", "u", "*", "read", "allow")] * 2
    ),
    lambda lib, m, c: c.describe_acls(None),
    lambda lib, m, c: c.delete_acls([]),
    lambda lib, m, c: c.list_consumer_groups(states=["EMPTY"]),
    lambda lib, m, c: c.list_consumer_groups(states={"EMPTY"}),
    lambda lib, m, c: c.list_consumer_groups(types={lib.ConsumerGroupType.UNKNOWN}),
    lambda lib, m, c: c.describe_consumer_groups("g"),
    lambda lib, m, c: c.describe_consumer_groups([]),
    lambda lib, m, c: c.delete_consumer_groups([3]),
    lambda lib, m, c: c.list_consumer_group_offsets(None),
    lambda lib, m, c: c.list_consumer_group_offsets([]),
    lambda lib, m, c: c.list_consumer_group_offsets([group(lib, ("t", 1, 5))]),
    lambda lib, m, c: c.list_consumer_group_offsets(
        [lib.ConsumerGroupTopicPartitions("g")], require_stable="x"
    ),
    lambda lib, m, c: c.list_consumer_group_offsets([lib.ConsumerGroupTopicPartitions("")]),
    lambda lib, m, c: c.alter_consumer_group_offsets([group(lib)]),
    lambda lib, m, c: c.alter_consumer_group_offsets([group(lib, ("t", 1))]),
    lambda lib, m, c: c.alter_consumer_group_offsets([group(lib, ("t", -1, 5))]),
    lambda lib, m, c: c.alter_consumer_group_offsets([lib.ConsumerGroupTopicPartitions("g")]),
    lambda lib, m, c: c.describe_user_scram_credentials("u"),
    lambda lib, m, c: c.describe_user_scram_credentials([""]),
    lambda lib, m, c: c.alter_user_scram_credentials([]),
    lambda lib, m, c: c.alter_user_scram_credentials([m.UserScramCredentialAlteration("u")]),
    lambda lib, m, c: c.alter_user_scram_credentials([m.UserScramCredentialDeletion("u", "SCRAM")]),
    lambda lib, m, c: c.list_offsets([]),
    lambda lib, m, c: c.list_offsets({lib.TopicPartition("t", 0): "latest"}),
    lambda lib, m, c: c.list_offsets({lib.TopicPartition("t"): m.OffsetSpec.latest()}),
    lambda lib, m, c: c.list_offsets({}, isolation_level="read_committed"),
    lambda lib, m, c: c.delete_records("t"),
    lambda lib, m, c: c.delete_records([lib.TopicPartition("t")]),
    lambda lib, m, c: c.elect_leaders("PREFERRED"),
    lambda lib, m, c: c.elect_leaders(lib.ElectionType.PREFERRED, "t"),
    lambda lib, m, c: c.elect_leaders(lib.ElectionType.PREFERRED, [lib.TopicPartition("t", -1)]),
]


def test_arguments_are_rejected_as_in_confluent_kafka(clients: list[tuple[Any, Any, Any]]) -> None:
    for number, call in enumerate(REFUSED):
        found = []
        for of_library in clients:
            with warnings.catch_warnings(), pytest.raises(Exception) as caught:
                warnings.simplefilter("ignore")
                call(*of_library)
            found.append(caught.type)
        assert found[0] is found[1], number


def test_invalid_passwords_are_rejected_and_not_shown_in_errors() -> None:
    module: Any = import_module(f"{ours.__name__}.admin")
    info = module.ScramCredentialInfo(module.ScramMechanism.SCRAM_SHA_256, 4096)
    with AdminClient(NOWHERE) as client:
        for wrong, kind in (("text", TypeError), (b"", ValueError), (b"\xffsecret", ValueError)):
            upsertion = module.UserScramCredentialUpsertion("u", info, wrong)
            with pytest.raises(kind, match="'password'") as caught:
                client.alter_user_scram_credentials([upsertion])
            assert "secret" not in str(caught.value)
            assert caught.value.__cause__ is None
            # The context may be an error that xdist is handling while it runs the last test.
            assert "secret" not in repr(caught.value.__context__)


def test_each_future_completes_although_no_broker_is_reachable() -> None:
    with AdminClient(NOWHERE) as client:
        futures: list[Future[Any]] = [
            *client.create_topics([NewTopic("a"), NewTopic("b")]).values(),
            *client.delete_topics(["a" * 300, "b"], request_timeout=0.1).values(),
            client.describe_cluster(request_timeout=0),
        ]
        assert not any(future.cancel() for future in futures)
        codes = [future.exception(10).args[0].code() for future in futures]  # type: ignore[union-attr]
        refused = KafkaError.TOPIC_EXCEPTION
        timed_out = KafkaError._TIMED_OUT
        assert codes == [timed_out, timed_out, refused, timed_out, timed_out]
        assert [*client.list_offsets({}), *client.delete_records([])] == []


def test_a_topic_name_given_twice_does_not_affect_other_topics_of_the_call() -> None:
    with AdminClient(NOWHERE) as client:
        found = client.create_topics([NewTopic("a"), NewTopic("a", 3), NewTopic("b")])
        codes = {name: future.exception(10).args[0].name() for name, future in found.items()}  # type: ignore[union-attr]
        assert codes == {"a": "INVALID_REQUEST", "b": "_TIMED_OUT"}


def test_admin_calls_run_concurrently() -> None:
    """The two long calls wait until the client is closed, so they can't time out earlier."""
    with AdminClient(NOWHERE) as client:
        # pytest rewrites modules that are first imported here; in two threads at once CPython 3.11
        # raises "SystemError: AST constructor recursion depth mismatch".
        client.describe_cluster(request_timeout=0).exception(PATIENCE)
        client.list_consumer_groups(request_timeout=0).exception(PATIENCE)
        client.describe_acls(ACL_FILTER, request_timeout=0).exception(PATIENCE)
        long: list[Future[Any]] = [
            client.describe_cluster(request_timeout=LONGEST),
            client.list_consumer_groups(request_timeout=LONGEST),
        ]
        try:
            short = client.describe_acls(ACL_FILTER, request_timeout=0.1)
            assert short.exception(PATIENCE).args[0].code() == KafkaError._TIMED_OUT  # type: ignore[union-attr]
            end = time.monotonic() + PATIENCE
            while time.monotonic() < end:  # until connecting fails before `list_topics` times out
                with pytest.raises(KafkaException) as caught:
                    client.list_topics(timeout=0.1)
                if caught.value.args[0].code() != KafkaError._TIMED_OUT:
                    break
            assert caught.value.args[0].code() == KafkaError._TRANSPORT
            assert [future.exception() for future in long if future.done()] == []
        finally:
            client._questions.close()
        assert all(future.exception(PATIENCE) for future in long)


def test_a_call_for_several_partitions_that_times_out_raises_one_error() -> None:
    with AdminClient(NOWHERE) as client:
        place = TopicPartition("t", 0, 5)
        changed = client.alter_consumer_group_offsets(
            [ours.ConsumerGroupTopicPartitions("g", [place])]
        )
        elected = client.elect_leaders(ours.ElectionType.PREFERRED, [place])
        for future in (changed["g"], elected):
            assert future.exception(10).args[0].code() == KafkaError._TIMED_OUT  # type: ignore[union-attr]


def test_the_futures_of_a_call_raise_its_unexpected_error() -> None:
    with AdminClient(NOWHERE) as client:

        def fails(*_: Any) -> Any:
            raise RuntimeError("broken")

        found: dict[str, Future[Any]] = client._each(["a", "b"], 1.0, fails)
        assert {str(future.exception(10)) for future in found.values()} == {"broken"}
        assert str(client._one(1.0, fails).exception(10)) == "broken"


def test_the_other_items_of_a_call_return_results_if_one_item_fails() -> None:
    with AdminClient(NOWHERE) as client:
        low, high = odradek.TopicPartition("t", 0), odradek.TopicPartition("t", 1)

        def partly(*_: Any) -> Any:
            wrong = odradek.errors.OffsetOutOfRangeError("t-1")
            raise wrong.beside({low: 5}, {high: wrong})

        given = [TopicPartition("t", 0), TopicPartition("t", 1)]
        found = client._each(
            given,
            1.0,
            partly,
            ours=lambda p: odradek.TopicPartition(p.topic, p.partition),
            made=lambda _, offset: offset,
        )
        assert found[given[0]].result(10) == 5
        error = found[given[1]].exception(10)
        assert isinstance(error, KafkaException)
        assert error.args[0].code() == KafkaError.OFFSET_OUT_OF_RANGE
        assert isinstance(error.__cause__, odradek.errors.OffsetOutOfRangeError)
