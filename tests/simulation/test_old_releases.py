"""Every call works with the API versions of old brokers, or says why not.

`broker_versions.json` contains the ApiVersions responses of real brokers. A call works as with new
brokers, or its error names the API or value that the brokers lack.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.property.test_lying_answers import CALLS, T0, U0, admin_of, asked_of
from tests.simulation.scene import Stage

from odradek.api.admin import Admin
from odradek.clients.consumer.records import OffsetAndMetadata
from odradek.common.errors import KafkaError
from odradek.protocol.registry import API_NAMES
from odradek.simulation import SimulatedCluster

RELEASES: dict[str, dict[str, list[int]]] = json.loads(
    (Path(__file__).parent.parent / "spec" / "broker_versions.json").read_text()
)
VALUES = {
    "create_topics": "the brokers' default for partitions or replication needs version 4",
    "update_features": "can't contain FeatureUpdateKey.upgrade_type, which needs version 1",
    "describe_user_scram_credentials": "user bob: Attempt to describe a user credential that does",
}
"""By call: the value in the table that an old version of its API lacks."""


def become(cluster: SimulatedCluster, release: str) -> None:
    """Restart all brokers with the versions of a release, as far as the simulation has them."""
    spoken = {}
    for key, (low, high) in cluster.versions.items():
        first, last = RELEASES[release].get(str(key), (1, 0))
        if max(low, first) <= min(high, last):
            spoken[key] = max(low, first), min(high, last)
    cluster.versions.clear()
    cluster.versions.update(spoken)
    for broker in cluster.brokers.values():
        broker.speak(None)


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("name", CALLS)
def test_an_admin_call_works_or_names_the_api_or_value_that_brokers_lack(
    release: str, name: str
) -> None:
    world, cluster = asked_of(1)
    become(cluster, release)
    said = ""
    with admin_of(world, cluster) as admin:
        try:
            CALLS[name][0](admin)
        except KafkaError as error:
            said = f"{type(error).__name__}: {error}"
    unknown = [api for key, api in API_NAMES.items() if key not in cluster.versions]
    lacking = [f"UnsupportedVersionError: {api}: broker" for api in unknown]
    assert (
        not said
        or (said.startswith(tuple(lacking)) and "doesn't support it" in said)
        or VALUES[name] in said
    )


@pytest.mark.parametrize("release", RELEASES)
def test_offsets_of_several_groups_are_listed_and_topics_deleted(release: str) -> None:
    world, cluster = asked_of(1)
    with admin_of(world, cluster) as admin:
        admin.alter_group_offsets("h", {U0: 3})
        become(cluster, release)
        found = admin.list_group_offsets(["g", "h", "absent"])
        assert {g: {tp: at.offset for tp, at in o.items()} for g, o in found.items()} == {
            "g": {T0: 0}, "h": {T0: 0, U0: 3}, "absent": {},
        }  # fmt: skip
        assert list(admin.list_group_offsets({"h": [U0]})["h"]) == [U0]
        admin.delete_topics(["t"])
        assert admin.list_topics() == ["u"]


@pytest.mark.parametrize("release", RELEASES)
def test_a_group_and_a_transaction_read_and_commit(release: str) -> None:
    scene = Stage()
    become(scene.cluster, release)
    scene.write(range(9))
    with scene.consumer(group_id="g") as consumer, scene.producer(transactional_id="x") as producer:
        consumer.subscribe(["t"])
        assert scene.read(consumer, 9) == list(range(9))
        consumer.commit()
        found = consumer.committed(consumer.assignment()).values()
        assert [at and at.offset for at in found] == [3, 3, 3]
        producer.init_transactions()
        with producer.transaction():
            producer.send("t", b"9", partition=0)
            producer.send_offsets_to_transaction({T0: OffsetAndMetadata(4)}, "h")
        with scene.client(Admin) as admin:
            assert admin.list_group_offsets("h")["h"] == {T0: OffsetAndMetadata(4)}
        assert scene.read(consumer, 1) == [9]


def test_the_table_contains_apis_of_this_client() -> None:
    counts = [len(set(map(int, versions)) & set(API_NAMES)) for versions in RELEASES.values()]
    assert counts == sorted(counts)
    assert counts[0] > 30
