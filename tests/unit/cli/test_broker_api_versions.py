"""Test the output of `odradek broker-api-versions`."""

from __future__ import annotations

from dataclasses import replace

from odradek.cli.brokers.broker_api_versions import as_dict, as_text
from odradek.clients.admin.api_versions import ApiVersionRange, BrokerApiVersions, api_ranges
from odradek.clients.descriptions import BrokerDescription
from odradek.common.errors import Attempt, KafkaTimeoutError
from odradek.common.types import Address
from odradek.protocol.api_keys import BROKER_APIS
from odradek.protocol.messages.api_versions import ApiVersion, ApiVersionsResponse

BROKER = BrokerDescription(3, "b3", 9092, "r1")


def ranges(*told: tuple[int, int, int]) -> dict[int, ApiVersionRange]:
    found = api_ranges(ApiVersionsResponse(api_keys=[ApiVersion(*one) for one in told]))
    return {one.key: one for one in found}


def test_each_api_is_listed_with_its_versions_or_the_reason_why_it_cannot_be_used() -> None:
    found = ranges((0, 0, 13), (1, 4, 99), (3, 90, 99), (19, 0, 1), (33, 1, 2), (900, 1, 1))
    assert list(found) == sorted(BROKER_APIS | {900})
    assert found[0] == ApiVersionRange(0, "Produce", 0, 13, 13)
    assert found[1].usable == 18
    assert found[3].problem == "node too new"
    assert found[19].problem == "node too old"
    assert found[33].problem == "not supported by this client"
    assert found[900] == ApiVersionRange(900, None, 1, 1, None, "unknown API")
    assert found[71] == ApiVersionRange(
        71, "GetTelemetrySubscriptions", None, None, None, "not supported by the broker"
    )


def test_versions_are_printed_as_by_kafkas_tool() -> None:
    apis = tuple(ranges((0, 0, 13), (18, 0, 0), (33, 1, 2), (900, 1, 2), (901, 5, 5)).values())
    chosen = tuple(a for a in apis if a.key in (0, 18, 33, 71, 900, 901))
    assert as_text(BrokerApiVersions(BROKER, chosen)).splitlines() == [
        "b3:9092 (id: 3 rack: r1 isFenced: false) -> (",
        "\tProduce(0): 0 to 13 [usable: 13],",
        "\tApiVersions(18): 0 [usable: 0],",
        "\tAlterConfigs(33): 1 to 2 [unusable: not supported by this client],",
        "\tGetTelemetrySubscriptions(71): UNSUPPORTED,",
        "\tUNKNOWN(900): 1 to 2,",
        "\tUNKNOWN(901): 5",
        ")",
    ]


def test_the_error_of_a_broker_is_printed_on_one_line() -> None:
    error = KafkaTimeoutError("too late", [Attempt(Address("b3", 9092), "dial", "x", 1.0)], 2.0)
    found = BrokerApiVersions(replace(BROKER, rack=None), (), error)
    assert as_text(found) == (
        "b3:9092 (id: 3 rack: null isFenced: false) -> "
        "ERROR: KafkaTimeoutError: too late; b3:9092: dial: x (1.0 s ago)"
    )
    assert as_dict(found) == {
        "id": 3,
        "host": "b3",
        "port": 9092,
        "rack": None,
        "error": "KafkaTimeoutError: too late; b3:9092: dial: x (1.0 s ago)",
        "apis": [],
    }
