"""Ask every broker at once which versions of which APIs it supports (KIP-35).

In: a deadline. Out: one `BrokerApiVersions` per broker, with its ranges or its error. Each broker's
request has its own backoff (R-RT-1); the deadline is the only limit (R-RT-2), and a broker that
doesn't answer delays no other. Must not: use the response of a handshake, which may be hours old on
a long-lived connection.
"""

from __future__ import annotations

from dataclasses import dataclass

from odradek.clients.admin.admin_call import AdminCall
from odradek.clients.any_broker import AnyBrokerCall
from odradek.clients.batched_calls import ApiCall, ItemResults, call_brokers
from odradek.clients.client_engine import ClientEngine
from odradek.clients.descriptions import BrokerDescription, check_metadata, note_brokers
from odradek.common.errors import KafkaError
from odradek.network.flow import START, Flow
from odradek.network.handshake import api_versions_request
from odradek.protocol.api_keys import API_NAMES, BROKER_APIS, GENERATED
from odradek.protocol.messages.api_versions import ApiVersionsResponse
from odradek.protocol.messages.metadata import MetadataRequest, MetadataResponse
from odradek.protocol.registry import request_class


@dataclass(frozen=True, slots=True)
class ApiVersionRange:
    """One API of one broker; `name` is None if Kafka 4.4 has no such API.

    `min_version` and `max_version` are None if the broker doesn't support the API. `usable` is the
    version that this client would use; None if it can't use any, and then `problem` says why.
    """

    key: int
    name: str | None
    min_version: int | None
    max_version: int | None
    usable: int | None
    problem: str | None = None


@dataclass(frozen=True, slots=True)
class BrokerApiVersions:
    """The APIs that one broker supports, sorted by API key.

    If the broker didn't answer, `apis` is empty and `error` says why.
    """

    broker: BrokerDescription
    apis: tuple[ApiVersionRange, ...]
    error: KafkaError | None = None


ASKED: ApiCall[None, ApiVersionsResponse, ApiVersionsResponse] = ApiCall(
    "ApiVersions",
    "",
    lambda *_: api_versions_request(),
    ApiVersionsResponse,
    lambda answer: [(None, 0, None, answer)],
)


def describe_api_versions(
    engine: ClientEngine, deadline: float
) -> Flow[tuple[BrokerApiVersions, ...]]:
    """Ask a broker for the list of brokers, then each broker for its API versions."""
    yield START
    brokers = yield from list_brokers(engine, deadline)
    outcomes = yield from call_brokers(
        engine.brokers, lambda _: ASKED, {b.id: (None,) for b in brokers}, deadline
    )
    return tuple(_outcome(b, outcomes[b.id]) for b in brokers)


def list_brokers(engine: ClientEngine, deadline: float) -> Flow[list[BrokerDescription]]:
    """Return the brokers in a metadata response, which old brokers support, too."""
    yield START
    call = AnyBrokerCall(engine.brokers, "the list of brokers", deadline)
    response: MetadataResponse = yield from call.ask(
        lambda _: MetadataRequest(topics=[], allow_auto_topic_creation=False),
        MetadataResponse,
        check_metadata(engine.brokers),
    )
    note_brokers(engine.brokers, response)
    found = {b.node_id: b for b in response.brokers}
    return [BrokerDescription(n, b.host, b.port, b.rack) for n, b in sorted(found.items())]


def _outcome(
    broker: BrokerDescription, answer: ItemResults[None, ApiVersionsResponse]
) -> BrokerApiVersions:
    if answer.errors:
        return BrokerApiVersions(broker, (), answer.errors[None])
    return BrokerApiVersions(broker, api_ranges(answer.results[None]))


API_VERSIONS: AdminCall[tuple[BrokerApiVersions, ...]] = AdminCall(
    "API versions of the brokers", describe_api_versions
)


def api_ranges(response: ApiVersionsResponse) -> tuple[ApiVersionRange, ...]:
    """Return a broker's APIs sorted by key, including those that it doesn't support."""
    told = {k.api_key: (k.min_version, k.max_version) for k in response.api_keys}
    return tuple(_range(key, told.get(key)) for key in sorted(told.keys() | BROKER_APIS))


def _range(key: int, told: tuple[int, int] | None) -> ApiVersionRange:
    name = API_NAMES.get(key)
    if told is None:
        return ApiVersionRange(key, name, None, None, None, "not supported by the broker")
    low, high = told
    if name is None:
        return ApiVersionRange(key, None, low, high, None, "unknown API")
    if name not in GENERATED:
        return ApiVersionRange(key, name, low, high, None, "not supported by this client")
    ours = request_class(key)
    if low > ours.MAX_VERSION:
        return ApiVersionRange(key, name, low, high, None, "node too new")
    if high < ours.MIN_VERSION:
        return ApiVersionRange(key, name, low, high, None, "node too old")
    return ApiVersionRange(key, name, low, high, min(high, ours.MAX_VERSION))
