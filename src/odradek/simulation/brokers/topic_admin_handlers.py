"""Handle admin requests for partitions, records and configuration options.

In: a broker, a decoded request, its version, and a callback for a later response. Out: the
response. Must not know connections.
"""

from __future__ import annotations

from typing import Any

from odradek.common.errors import kafka as errors
from odradek.protocol.message import Message
from odradek.protocol.messages import create_partitions as cp
from odradek.protocol.messages import delete_records as dr
from odradek.protocol.messages import describe_configs as dc
from odradek.protocol.messages import incremental_alter_configs as ac
from odradek.protocol.messages import list_config_resources as lc
from odradek.simulation.brokers.admin_state import (
    BOOLEAN,
    BROKER,
    BROKER_LOGGER,
    CLIENT_METRICS,
    DEFAULTS,
    DOUBLE,
    GROUP,
    LEVELS,
    LIST,
    TOPIC,
    WHOLE_NUMBERS,
    each,
)
from odradek.simulation.brokers.cluster_state import BrokerState, Handler, Reply
from odradek.simulation.brokers.record_handlers import find_topic, led_partition

SET, DELETE, APPEND, SUBTRACT = range(4)
DEFAULT_CONFIG = 5
DYNAMIC = {TOPIC: 1, BROKER: 2, BROKER_LOGGER: 6, CLIENT_METRICS: 7, GROUP: 8}
"""Kafka's number for the source of a changed option (dynamic configuration), by resource type."""
DYNAMIC_DEFAULT_BROKER = 3
TYPES = {3: "INT", 4: "SHORT", 5: "LONG", 6: "DOUBLE"}
KIND_NAMES = {
    TOPIC: "topic",
    BROKER: "broker",
    BROKER_LOGGER: "logger",
    CLIENT_METRICS: "client metrics",
    GROUP: "group",
}


def create_partitions(
    broker: BrokerState, request: cp.CreatePartitionsRequest, version: int, reply: Reply
) -> cp.CreatePartitionsResponse:
    """Add partitions to topics."""
    cluster = broker.cluster

    def add(asked: cp.CreatePartitionsTopic) -> None:
        topic = find_topic(broker, asked.name, b"", by_id=False)
        more = asked.count - len(topic.partitions)
        if more <= 0:
            raise errors.InvalidPartitionsError(
                f"Topic currently has {len(topic.partitions)} partitions, which is not fewer than "
                f"the requested {asked.count}."
            )
        if asked.assignments is not None and len(asked.assignments) != more:
            raise errors.InvalidReplicaAssignmentError(f"{more} new partitions need as many")
        if not request.validate_only:
            replicas = [list(a.broker_ids) for a in asked.assignments or ()]
            cluster.add_partitions(asked.name, more, replicas)

    return cp.CreatePartitionsResponse(
        results=each(
            request.topics,
            add,
            lambda t, code, why, _: cp.CreatePartitionsTopicResult(t.name, code, why),
        )
    )


def delete_records(
    broker: BrokerState, request: dr.DeleteRecordsRequest, version: int, reply: Reply
) -> dr.DeleteRecordsResponse:
    """Delete records of partitions that this broker leads."""

    def of_topic(topic: dr.DeleteRecordsTopic) -> dr.DeleteRecordsTopicResult:
        def cut(asked: dr.DeleteRecordsPartition) -> int:
            found = find_topic(broker, topic.name, b"", by_id=False)
            log = led_partition(broker, found, asked.partition_index, -1).log
            offset = log.high_watermark if asked.offset == -1 else asked.offset
            if not log.start_offset <= offset <= log.high_watermark:
                raise errors.OffsetOutOfRangeError(f"{offset}")
            log.delete_before(offset)
            return log.start_offset

        return dr.DeleteRecordsTopicResult(
            topic.name,
            each(
                topic.partitions,
                cut,
                lambda p, code, _, low: dr.DeleteRecordsPartitionResult(
                    p.partition_index, -1 if low is None else low, code
                ),
            ),
        )

    return dr.DeleteRecordsResponse(topics=[of_topic(t) for t in request.topics])


# Options


def _check_resource(broker: BrokerState, kind: int, name: str) -> None:
    if kind == TOPIC:
        find_topic(broker, name, b"", by_id=False)
    elif kind in (BROKER, BROKER_LOGGER):
        if name and name != str(broker.id):
            raise errors.InvalidRequestError(
                f"Unexpected broker id, expected {broker.id} or empty string, but received {name}"
            )
    elif kind not in DEFAULTS:
        raise errors.InvalidRequestError(f"there are no resources of type {kind}")


def describe_configs(
    broker: BrokerState, request: dc.DescribeConfigsRequest, version: int, reply: Reply
) -> dc.DescribeConfigsResponse:
    """Return options with their values and sources."""

    def told(asked: dc.DescribeConfigsResource) -> list[dc.DescribeConfigsResourceResult]:
        kind, name = asked.resource_type, asked.resource_name
        _check_resource(broker, kind, name)
        wanted = asked.configuration_keys
        return [
            _option(broker, kind, name, option, synonyms=request.include_synonyms)
            for option in DEFAULTS[kind]
            if wanted is None or option in wanted
        ]

    return dc.DescribeConfigsResponse(
        results=each(
            request.resources,
            told,
            lambda r, code, why, found: dc.DescribeConfigsResult(
                code, why, r.resource_type, r.resource_name, found or []
            ),
        )
    )


def _option(
    broker: BrokerState, kind: int, name: str, option: str, *, synonyms: bool
) -> dc.DescribeConfigsResourceResult:
    configs = broker.cluster.admin.configs
    default, value_type = DEFAULTS[kind][option]
    values = [(DEFAULT_CONFIG, default)]
    if kind == BROKER and name and option in configs.get((kind, ""), {}):
        values.insert(0, (DYNAMIC_DEFAULT_BROKER, configs[kind, ""][option]))
    if option in configs.get((kind, name), {}):
        source = DYNAMIC_DEFAULT_BROKER if kind == BROKER and not name else DYNAMIC[kind]
        values.insert(0, (source, configs[kind, name][option]))
    return dc.DescribeConfigsResourceResult(
        option,
        values[0][1],
        config_source=values[0][0],
        synonyms=[dc.DescribeConfigsSynonym(option, v, s) for s, v in values] if synonyms else [],
        config_type=value_type,
        documentation=None,
    )


def incremental_alter_configs(
    broker: BrokerState, request: ac.IncrementalAlterConfigsRequest, version: int, reply: Reply
) -> ac.IncrementalAlterConfigsResponse:
    """Change options of topics, brokers and other resources."""
    state = broker.cluster.admin

    def change(asked: ac.AlterConfigsResource) -> None:
        resource = asked.resource_type, asked.resource_name
        _check_resource(broker, *resource)
        values = state.copied(resource)
        for op in asked.configs:
            _change(resource[0], values, op)
        if not request.validate_only:
            state.configs[resource] = values

    return ac.IncrementalAlterConfigsResponse(
        responses=each(
            request.resources,
            change,
            lambda r, code, why, _: ac.AlterConfigsResourceResponse(
                code, why, r.resource_type, r.resource_name
            ),
        )
    )


def check_option(kind: int, name: str, value: str) -> None:
    """Raise `InvalidConfigError` for an unknown option, or an invalid value."""
    if name not in DEFAULTS[kind]:
        raise errors.InvalidConfigError(f"Unknown {KIND_NAMES[kind]} config name: {name}")
    value_type = DEFAULTS[kind][name][1]
    said = f"Invalid value {value} for configuration {name}"
    if value_type in WHOLE_NUMBERS and not value.removeprefix("-").isdecimal():
        raise errors.InvalidConfigError(f"{said}: Not a number of type {TYPES[value_type]}")
    if value_type == DOUBLE and not value.replace(".", "", 1).isdecimal():
        raise errors.InvalidConfigError(f"{said}: Not a number of type {TYPES[value_type]}")
    if value_type == BOOLEAN and value.lower() not in ("true", "false"):
        raise errors.InvalidConfigError(f"{said}: Expected value to be either true or false")
    if kind == BROKER_LOGGER and value not in LEVELS:
        raise errors.InvalidConfigError(f"{value} is no level of a logger")


def _change(kind: int, values: dict[str, str], op: ac.AlterableConfig) -> None:
    default, value_type = DEFAULTS[kind].get(op.name, ("", 0))
    if op.config_operation == DELETE:
        check_option(kind, op.name, default)
        values.pop(op.name, None)
        return
    value = op.value or ""
    if op.config_operation in (APPEND, SUBTRACT):
        check_option(kind, op.name, default)
        if value_type != LIST:
            raise errors.InvalidConfigError(f"Can't append to config value of {op.name}: no list")
        there = [item for item in values.get(op.name, default).split(",") if item]
        if op.config_operation == APPEND:
            there += [item for item in value.split(",") if item not in there]
        else:
            there = [item for item in there if item not in value.split(",")]
        value = ",".join(there)
    check_option(kind, op.name, value)
    values[op.name] = value


def list_config_resources(
    broker: BrokerState, request: lc.ListConfigResourcesRequest, version: int, reply: Reply
) -> lc.ListConfigResourcesResponse:
    """Return the resources that have changed options; in version 0 only client metrics."""
    cluster = broker.cluster
    kinds = request.resource_types or list(DEFAULTS)
    if version == 0:
        kinds = [CLIENT_METRICS]
    found: list[lc.ConfigResource] = []
    for kind in kinds:
        if kind not in DEFAULTS:
            return lc.ListConfigResourcesResponse(error_code=errors.UnsupportedVersionError.code)
        names = [name for k, name in cluster.admin.configs if k == kind and name]
        if kind == TOPIC:
            names = list(cluster.topics)
        elif kind in (BROKER, BROKER_LOGGER):
            names = [str(b.id) for b in cluster.brokers.values() if b.registered]
        found += [lc.ConfigResource(name, kind) for name in names]
    return lc.ListConfigResourcesResponse(config_resources=found)


TOPIC_ADMIN_HANDLERS: dict[type[Message], Handler] = {
    ac.IncrementalAlterConfigsRequest: incremental_alter_configs,
    cp.CreatePartitionsRequest: create_partitions,
    dc.DescribeConfigsRequest: describe_configs,
    dr.DeleteRecordsRequest: delete_records,
    lc.ListConfigResourcesRequest: list_config_resources,
}
TOPIC_ADMIN_REFUSALS: dict[str, Any] = {
    "CreatePartitions": lambda body, code: cp.CreatePartitionsResponse(
        results=[cp.CreatePartitionsTopicResult(t.name, code) for t in body.topics]
    ),
    "DeleteRecords": lambda body, code: dr.DeleteRecordsResponse(
        topics=[
            dr.DeleteRecordsTopicResult(
                t.name,
                [
                    dr.DeleteRecordsPartitionResult(p.partition_index, -1, code)
                    for p in t.partitions
                ],
            )
            for t in body.topics
        ]
    ),
    "IncrementalAlterConfigs": lambda body, code: ac.IncrementalAlterConfigsResponse(
        responses=[
            ac.AlterConfigsResourceResponse(code, None, r.resource_type, r.resource_name)
            for r in body.resources
        ]
    ),
}
"""Responses by API that repeat an error code for each item of the request."""
