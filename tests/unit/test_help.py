"""`help()` of public classes contains what users need, and its examples run.

The examples of asyncio clients run in tests/integration/test_asyncio_clients.py. The others run in
the simulation: clients of `localhost:9092` connect to the simulated cluster, which has the topics
`flights`, empty, and `arrivals`, with two records. Examples with `Workers` use a `FakeCluster`,
because their threads would wake a simulated client at any time, from Python 3.14 on often during a
call.
"""

from __future__ import annotations

import doctest
import inspect
import re
import signal
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from importlib import import_module
from typing import Any

import polars
import pytest
from tests.registry_server import registry_server

import odradek
from odradek.common.public_names import APART, PLACES
from odradek.testing import FakeCluster, KafkaSimulation

PUBLIC: dict[str, Any] = {
    name: getattr(import_module(place), name)
    for name, place in PLACES.items()
    if place not in APART
}
CLASSES = [value for value in PUBLIC.values() if isinstance(value, type)]
RULE = re.compile(r"\bR-[A-Z]{2}-\d+")
OF_ALL = (
    "client_instance_id cluster_id close ended explain health listen metrics set_sasl_credentials"
)
FUTURE = """
    add_done_callback cancel cancelled done exception result running set_exception set_result
    set_running_or_notify_cancel
"""
LOOP_FUTURE = """
    add_done_callback cancel cancelled done exception get_loop remove_done_callback result
"""
METHODS = {
    odradek.Admin: f"""
        {OF_ALL} abort_transaction add_raft_voter alter_client_quotas alter_group_offsets
        alter_partition_reassignments alter_replica_log_dirs alter_share_group_offsets
        alter_user_scram_credentials create_acls create_delegation_token create_partitions
        create_topics delete_acls delete_group_offsets delete_groups delete_records
        delete_share_group_offsets delete_topics describe_acls describe_api_versions
        describe_classic_groups describe_client_quotas describe_cluster describe_configs
        describe_consumer_groups describe_delegation_tokens describe_features describe_log_dirs
        describe_metadata_quorum describe_producers describe_reachability
        describe_replica_log_dirs describe_share_groups describe_streams_groups describe_topics
        describe_transactions describe_user_scram_credentials elect_leaders
        examine expire_delegation_token fence_producers find_hanging_transactions
        incremental_alter_configs list_config_resources list_group_offsets list_groups
        list_offsets list_partition_reassignments list_share_group_offsets list_topics
        list_transactions remove_group_members remove_raft_voter renew_delegation_token
        unregister_broker unregister_controller update_features
    """,
    odradek.Consumer: f"""
        {OF_ALL} assign assignment batches beginning_offsets bootstrap_hint commit commit_async
        committed describe end_offsets enforce_rebalance group_metadata high_watermarks lag
        list_topics offsets_for_times partitions_for pause paused poll poll_arrow position records
        resume seek seek_to_beginning seek_to_committed seek_to_end subscribe subscription
        unsubscribe wakeup
    """,
    odradek.Producer: f"""
        {OF_ALL} abort_transaction begin_transaction commit_transaction committed_offsets flush
        init_transactions partitions_for send send_arrow send_many send_offsets_to_transaction
        transaction warm
    """,
    odradek.Workers: "progress run stop",
    odradek.AsyncWorkers: "progress run stop",
    odradek.RecordFuture: FUTURE,
    odradek.types.ArrowFuture: f"{FUTURE} acknowledged errors rows",
    odradek.types.ManyFuture: f"{FUTURE} acknowledged errors rows",
    odradek.DeliveryFuture: LOOP_FUTURE,
    odradek.types.ArrowDeliveryFuture: f"{LOOP_FUTURE} acknowledged errors rows",
    odradek.types.ManyDeliveryFuture: f"{LOOP_FUTURE} acknowledged errors rows",
}
METHODS |= {
    odradek.AsyncAdmin: METHODS[odradek.Admin],
    odradek.AsyncConsumer: METHODS[odradek.Consumer],
    odradek.AsyncProducer: f"{METHODS[odradek.Producer]} send_and_wait",
}
"""Methods for users. Names for internal use begin with an underscore."""


def public_members(cls: type) -> dict[str, Any]:
    return {name: it for name, it in inspect.getmembers(cls) if not name.startswith("_")}


@pytest.mark.parametrize("cls", METHODS)
def test_help_lists_the_public_methods_only(cls: type) -> None:
    assert set(public_members(cls)) == set(METHODS[cls].split())


def test_help_mentions_no_internal_rule() -> None:
    for cls in CLASSES:
        for name, described in [("", cls), *public_members(cls).items()]:
            assert not RULE.search(inspect.getdoc(described) or ""), f"{cls.__name__}.{name}"


def test_every_public_class_and_method_has_a_docstring() -> None:
    for cls in CLASSES:
        assert cls.__doc__, cls
        for name, member in public_members(cls).items():
            if callable(member):
                assert inspect.getdoc(member), f"{cls.__name__}.{name}"


def test_public_methods_have_no_private_arguments() -> None:
    for cls in CLASSES:
        for name, member in [("", cls), *public_members(cls).items()]:
            if callable(member) and (signature := _signature(member)) is not None:
                own = [p for p in signature.parameters if p.startswith("_")]
                assert own == [], f"{cls.__name__}.{name}"


def _signature(member: Any) -> inspect.Signature | None:
    try:
        return inspect.signature(member)
    except (TypeError, ValueError):  # for example, some of Python's own classes
        return None


def examples() -> Iterator[doctest.DocTest]:
    finder = doctest.DocTestFinder(recurse=False)
    seen = set()
    for cls in CLASSES:
        named = [(cls.__name__, cls)]
        named += [(f"{cls.__name__}.{n}", it) for n, it in public_members(cls).items()]
        for name, it in named:
            shown = ">>>" in (inspect.getdoc(it) or "")
            for test in finder.find(it, name, globs={}) if shown else ():
                awaited = re.search(r"\b(await|async) ", test.docstring or "")
                if test.examples and not awaited and test.docstring not in seen:
                    seen.add(test.docstring)
                    yield test


EXAMPLES = list(examples())


@contextmanager
def arrivals() -> Iterator[str]:
    """Start a fake cluster with real sockets and two records in topic `arrivals`."""
    with FakeCluster(brokers=1) as cluster:
        for topic in ("arrivals", "arrivals-failed"):
            cluster.create_topic(topic, partitions=1)
        with odradek.Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
            producer.send_many("arrivals", [b"JFK", b"LGA"]).result()
        yield cluster.bootstrap_servers


TRANSACTIONAL = ("Producer.transaction", "Consumer.seek_to_committed")


def test_docstrings_have_examples_and_none_is_skipped() -> None:
    assert len(EXAMPLES) > 8
    assert [t.name for t in EXAMPLES if any(e.options for e in t.examples)] == []


@pytest.mark.slow
@pytest.mark.parametrize("example", EXAMPLES, ids=lambda e: e.name)
def test_examples_in_docstrings_print_what_they_show(example: doctest.DocTest) -> None:
    handler = signal.getsignal(signal.SIGTERM)
    with KafkaSimulation() as kafka, registry_server() as server, ExitStack() as more:
        for part in example.examples:
            part.source = part.source.replace("http://localhost:8081", server.url)
        kafka.answer_for("localhost:9092")
        kafka.create_topic("flights", partitions=1)
        kafka.create_topic("arrivals", partitions=1)
        kafka.produce("arrivals", [b"JFK", b"LGA"])
        names = dict(PUBLIC)
        names["registry"] = odradek.serialization.SchemaRegistryClient({"url": server.url})
        options = {"transactional.id": "t"} if example.name in TRANSACTIONAL else {}
        producer = names["producer"] = kafka.producer(options)
        if options:
            producer.init_transactions()
        consumer = names["consumer"] = kafka.consumer(group_id="g", auto_offset_reset="earliest")
        consumer.assign([odradek.TopicPartition("arrivals", 0)])
        if options:
            names["records"] = consumer.poll(5.0)
        if "Workers" in example.name:
            kafka.create_topic("arrivals-failed", partitions=1)
            names["config"] = {"bootstrap.servers": "localhost:9092"}
            if example.name == "Workers":  # the threads of workers ignore virtual time
                kafka.allow_real_clients = True
                names["config"] = {"bootstrap.servers": more.enter_context(arrivals())}
                for part in example.examples:
                    part.source = part.source.replace("timeout=5.0", "timeout=0.5")
            names["work"] = lambda record: None
            mine = odradek.Consumer(names["config"], group_id="w", enable_auto_commit=False)
            names["workers"] = odradek.Workers(mine, names["work"])
        example.globs = {**names, "polars": polars, "signal": signal}
        said: list[str] = []
        try:
            doctest.DocTestRunner().run(example, out=said.append)
        finally:
            signal.signal(signal.SIGTERM, handler)
    assert "".join(said) == ""
