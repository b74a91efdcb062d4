"""Small programs for confluent-kafka's admin client, also run with another library.

In: the library (a module with confluent-kafka's names), a cluster, a function that records values.
Out: what a program observes, as plain values: names of error codes, not messages. Must not: record
anything that depends on timing.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from importlib import import_module
from typing import Any

from tests.integration.confluent_programs import (
    PATIENCE,
    Note,
    Program,
    consumer,
    places,
    read,
    written,
)

from odradek.testing import FakeCluster

Shown = Callable[[Any], Any]


def clients(library: Any, cluster: FakeCluster) -> tuple[Any, Any]:
    """Return the library's admin module and an admin client."""
    module = import_module(f"{library.__name__}.admin")
    return module, module.AdminClient({"bootstrap.servers": cluster.bootstrap_servers})


def outcome(future: Future[Any], shown: Shown) -> tuple[Any, ...]:
    """Return the result of a future as `shown` formats it, or an error's class and code."""
    try:
        return ("gives", shown(future.result(PATIENCE)))
    except Exception as error:
        return type(error).__name__, *(a.name() for a in error.args if hasattr(a, "fatal"))


def noted(note: Note, what: str, futures: Mapping[Any, Future[Any]], shown: Shown = repr) -> None:
    """Note the result of each future of a call."""
    for key, future in futures.items():
        note(what, str(key), *outcome(future, shown))


def same(value: Any) -> Any:
    return value


def until(condition: Callable[[], object]) -> None:
    """Wait for a condition: brokers propagate changes a little later."""
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.05)


def topics_are_created_and_deleted(library: Any, cluster: FakeCluster, note: Note) -> None:
    module, admin = clients(library, cluster)
    new = module.NewTopic
    wanted = [
        *(new("six", 6, 1), new("one", replica_assignment=[[1]], num_partitions=1)),
        *(new("flights", 1, 1), new("bad name!", 1, 1), new("far", 1, 9)),
        new("kept", 1, 1, config={"cleanup.policy": "compact"}),
    ]
    noted(note, "checked", admin.create_topics([new("six", 6, 1)], validate_only=True))
    noted(note, "made", admin.create_topics(wanted))
    until(lambda: {"six", "one"} <= set(admin.list_topics(timeout=PATIENCE).topics))
    found = admin.list_topics("six", timeout=PATIENCE).topics["six"]
    note("listed", len(found.partitions), found.error)
    more = [module.NewPartitions("one", 3), module.NewPartitions("six", 2)]
    noted(note, "more", admin.create_partitions([*more, module.NewPartitions("none", 2)]))

    def shown(t: Any) -> tuple[Any, ...]:
        return t.name, t.is_internal, [(p.id, p.leader.id, len(p.isr)) for p in t.partitions]

    names = library.TopicCollection(["six", "none", "bad name!"])
    noted(note, "described", admin.describe_topics(names), shown)
    asked = admin.describe_topics(
        library.TopicCollection(["six"]), include_authorized_operations=True
    )
    noted(note, "rights", asked, lambda t: [o.name for o in t.authorized_operations or []])
    noted(note, "deleted", admin.delete_topics(["six", "none", "one"]))
    until(lambda: "six" not in admin.list_topics(timeout=PATIENCE).topics)


def the_cluster_is_described(library: Any, cluster: FakeCluster, note: Note) -> None:
    _, admin = clients(library, cluster)
    found = admin.describe_cluster(include_authorized_operations=True).result(PATIENCE)
    note([n.id for n in found.nodes], found.controller.id, found.cluster_id == cluster.cluster_id)
    note([o.name for o in found.authorized_operations or []])
    note(admin.describe_cluster().result(PATIENCE).authorized_operations)
    note(admin.cluster_id() == found.cluster_id, len(admin), admin.poll(0))


def options_are_changed(library: Any, cluster: FakeCluster, note: Note) -> None:
    module, admin = clients(library, cluster)
    entry, operation = module.ConfigEntry, module.AlterConfigOpType

    def flights(**given: Any) -> Any:
        return module.ConfigResource("topic", "flights", **given)

    def described() -> None:
        entries = admin.describe_configs([flights()])[flights()].result(PATIENCE)
        for name in ("retention.ms", "cleanup.policy"):
            e = entries[name]
            note(name, e.value, e.source, e.is_default, e.is_read_only, e.is_sensitive)
            note(sorted(e.synonyms), [s.is_synonym for s in e.synonyms.values()], str(e))

    def change(name: str, value: Any, kind: Any, **keywords: Any) -> None:
        entries = [entry(name, value, incremental_operation=kind)]
        resources = [flights(incremental_configs=entries)]
        noted(note, kind.name, admin.incremental_alter_configs(resources, **keywords))

    described()
    change("retention.ms", "1234", operation.SET, validate_only=True)
    change("retention.ms", "1234", operation.SET)
    change("retention.ms", "x", operation.SET)
    change("cleanup.policy", "compact", operation.APPEND)
    described()
    change("retention.ms", None, operation.DELETE)
    change("cleanup.policy", "delete", operation.SUBTRACT)
    described()
    unknown = [flights(), module.ConfigResource("topic", "none")]
    noted(note, "unknown", admin.describe_configs(unknown), lambda found: len(found) > 1)


def groups_are_listed_and_deleted(library: Any, cluster: FakeCluster, note: Note) -> None:
    _, admin = clients(library, cluster)
    written(library, cluster, 3)
    client = consumer(library, cluster, client__id="screen")
    client.subscribe(["flights"])
    read(client, 3)
    client.commit(asynchronous=False)
    state, kind = library.ConsumerGroupState, library.ConsumerGroupType

    def listed(**keywords: Any) -> None:
        found = admin.list_consumer_groups(**keywords).result(PATIENCE)
        note(
            [
                (g.group_id, g.is_simple_consumer_group, g.state.name, g.type.name)
                for g in found.valid
            ]
        )
        note(found.errors)

    def shown(g: Any) -> tuple[Any, ...]:
        members = [
            (m.client_id, m.group_instance_id, places(m.assignment.topic_partitions))
            for m in g.members
        ]
        return (
            *(g.group_id, g.state.name, g.type.name, g.partition_assignor, g.coordinator.id),
            *(members, g.is_simple_consumer_group),
        )

    listed()
    listed(states={state.STABLE}, types={kind.CLASSIC})
    listed(states={state.EMPTY})
    noted(note, "described", admin.describe_consumer_groups(["board"]), shown)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for g in admin.list_groups("board", PATIENCE):
            note(g.id, g.state, g.protocol_type, g.protocol, g.error, g.broker.id)
            note([m.client_id for m in g.members])
    noted(note, "deleted", admin.delete_consumer_groups(["board", "nobody"]))
    client.close()
    listed(states={state.EMPTY})
    noted(note, "deleted", admin.delete_consumer_groups(["board"]))
    listed()


def offsets_of_groups_are_changed(library: Any, cluster: FakeCluster, note: Note) -> None:
    _, admin = clients(library, cluster)
    of, partition = library.ConsumerGroupTopicPartitions, library.TopicPartition

    def shown(found: Any) -> tuple[Any, ...]:
        return found.group_id, [
            (
                *(p.topic, p.partition, p.offset, p.metadata, p.leader_epoch),
                p.error and code_name(p.error),
            )
            for p in sorted(found.topic_partitions)
        ]

    for change in ([partition("flights", 0, 7, "m"), partition("flights", 1, 8)], None):
        if change:
            noted(note, "altered", admin.alter_consumer_group_offsets([of("g", change)]), shown)
        noted(note, "listed", admin.list_consumer_group_offsets([of("g")]), shown)
    some = [partition("flights", 1), partition("counts", 0)]
    noted(note, "some", admin.list_consumer_group_offsets([of("g", some)]), shown)
    noted(note, "nobody", admin.list_consumer_group_offsets([of("x")], require_stable=True), shown)
    client = consumer(library, cluster, group__id="g")
    client.subscribe(["counts"])
    until(lambda: client.poll(0.1) or client.assignment())
    noted(
        note,
        "members",
        admin.alter_consumer_group_offsets([of("g", [partition("flights", 0, 1)])]),
        shown,
    )
    client.close()


def offsets_are_listed_and_records_deleted(library: Any, cluster: FakeCluster, note: Note) -> None:
    module, admin = clients(library, cluster)
    for at in (1000, 3000, 2000):
        written(library, cluster, 1, timestamp=at)
    spec, place = module.OffsetSpec, library.TopicPartition("flights", 0)

    def shown(found: Any) -> tuple[int, int]:
        return found.offset, found.timestamp

    for wanted in (
        *(spec.earliest(), spec.latest(), spec.max_timestamp(), spec.for_timestamp(2500)),
        spec.for_timestamp(9000),
    ):
        noted(note, "offset", admin.list_offsets({place: wanted}), shown)
    both = {place: spec.latest(), library.TopicPartition("none", 3): spec.latest()}
    level = library.IsolationLevel.READ_COMMITTED
    noted(note, "both", admin.list_offsets(both, isolation_level=level), shown)
    for offset in (2, 99, library.OFFSET_END):
        before = [library.TopicPartition("flights", 0, offset)]
        noted(note, "deleted", admin.delete_records(before), lambda found: found.low_watermark)


def leaders_are_elected(library: Any, cluster: FakeCluster, note: Note) -> None:
    _, admin = clients(library, cluster)
    kind, partition = library.ElectionType, library.TopicPartition
    wanted = [partition("flights", 0), partition("none", 0)]
    found = admin.elect_leaders(kind.PREFERRED, wanted).result(PATIENCE)
    for place, error in sorted(found.items()):
        note(place.topic, None if error is None else code_name(error))
    note(admin.elect_leaders(kind.PREFERRED).result(PATIENCE))


def code_name(error: Any) -> str:
    """Return the name of the code of an error, or of the error in an exception."""
    name: str = (error.args[0] if isinstance(error, Exception) else error).name()
    return name


def acls_are_created_found_and_deleted(library: Any, cluster: FakeCluster, note: Note) -> None:
    module, admin = clients(library, cluster)
    binding, pattern = module.AclBinding, module.AclBindingFilter
    reads = binding("topic", "flights", "literal", "User:alice", "*", "read", "allow")
    writes = binding("topic", "f", "prefixed", "User:bob", "*", "write", "deny")
    alters = binding("broker", "kafka-cluster", "literal", "User:bob", "*", "alter", "allow")
    noted(note, "made", admin.create_acls([reads, writes, alters]))
    every = pattern("any", None, "any", None, None, "any", "any")
    matching = pattern("topic", "flights", "match", None, None, "any", "any")
    until(lambda: len(admin.describe_acls(every).result(PATIENCE)) == 3)
    for wanted in (every, matching):
        note(sorted(map(repr, admin.describe_acls(wanted).result(PATIENCE))))
    of_bob = pattern("any", None, "any", "User:bob", None, "any", "any")
    gone = admin.delete_acls([matching, of_bob])
    noted(note, "deleted", gone, lambda found: sorted(map(repr, found)))
    until(lambda: not admin.describe_acls(every).result(PATIENCE))


def passwords_are_set_and_deleted(library: Any, cluster: FakeCluster, note: Note) -> None:
    module, admin = clients(library, cluster)
    hashed = module.ScramMechanism

    def upsertion(user: str, mechanism: Any, iterations: int) -> Any:
        info = module.ScramCredentialInfo(mechanism, iterations)
        return module.UserScramCredentialUpsertion(user, info, b"a password")

    def shown(found: Any) -> tuple[Any, ...]:
        infos = [(i.mechanism.name, i.iterations) for i in found.scram_credential_infos]
        return found.user, infos

    new = [
        upsertion("alice", hashed.SCRAM_SHA_256, 4096),
        upsertion("bob", hashed.SCRAM_SHA_512, 1),
    ]
    changed = admin.alter_user_scram_credentials(new)
    noted(note, "set", dict(sorted(changed.items())))
    noted(note, "who", admin.describe_user_scram_credentials(["alice", "nobody"]), shown)
    everybody = admin.describe_user_scram_credentials().result(PATIENCE)
    note({user: shown(found) for user, found in everybody.items()})
    away = [module.UserScramCredentialDeletion("alice", hashed.SCRAM_SHA_256)]
    for _ in range(2):
        noted(note, "away", admin.alter_user_scram_credentials(away))
    note(list(admin.describe_user_scram_credentials().result(PATIENCE)))


ADMIN_PROGRAMS: tuple[Program, ...] = (
    topics_are_created_and_deleted,
    the_cluster_is_described,
    options_are_changed,
    groups_are_listed_and_deleted,
    offsets_of_groups_are_changed,
    offsets_are_listed_and_records_deleted,
    leaders_are_elected,
    acls_are_created_found_and_deleted,
    passwords_are_set_and_deleted,
)
