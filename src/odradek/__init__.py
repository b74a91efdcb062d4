"""Odradek: a Kafka client that keeps working while its cluster dies, moves and comes back.

    import odradek

    with odradek.Producer({"bootstrap.servers": "localhost:9092"}) as producer:
        producer.send("flights", value=b"JFK", key=b"N14228").result(timeout=10)

Every public class and error is importable from here; each is loaded on first use, so that
`import odradek` stays cheap. pyarrow is imported by the first call that needs it.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from odradek.api.admin import Admin as Admin
    from odradek.api.consumer import Consumer as Consumer
    from odradek.api.producer import Producer as Producer
    from odradek.api.properties import read_properties as read_properties
    from odradek.api.record_future import ArrowFuture as ArrowFuture
    from odradek.api.record_future import RecordFuture as RecordFuture
    from odradek.clients.admin.admin_arguments import NewTopic as NewTopic
    from odradek.clients.admin.admin_engine import ClusterDescription as ClusterDescription
    from odradek.clients.admin.api_versions import ApiVersionRange as ApiVersionRange
    from odradek.clients.admin.api_versions import BrokerApiVersions as BrokerApiVersions
    from odradek.clients.admin.reachability import AddressReach as AddressReach
    from odradek.clients.admin.reachability import Reachability as Reachability
    from odradek.clients.admin.reachability import TopicReach as TopicReach
    from odradek.clients.consumer.group.assignors import Assignor as Assignor
    from odradek.clients.consumer.group.assignors import AssignorError as AssignorError
    from odradek.clients.consumer.group.assignors import MemberSubscription as MemberSubscription
    from odradek.clients.consumer.group.assignors import RebalanceProtocol as RebalanceProtocol
    from odradek.clients.consumer.records import ConsumerGroupMetadata as ConsumerGroupMetadata
    from odradek.clients.consumer.records import ConsumerRecord as ConsumerRecord
    from odradek.clients.consumer.records import OffsetAndMetadata as OffsetAndMetadata
    from odradek.clients.consumer.records import OffsetAndTimestamp as OffsetAndTimestamp
    from odradek.clients.descriptions import BrokerDescription as BrokerDescription
    from odradek.clients.descriptions import PartitionDescription as PartitionDescription
    from odradek.clients.descriptions import TopicDescription as TopicDescription
    from odradek.clients.explain.explanation import Explanation as Explanation
    from odradek.clients.producer.batch import RecordMetadata as RecordMetadata
    from odradek.clients.producer.delivery import OffsetRange as OffsetRange
    from odradek.common.errors import *  # noqa: F403
    from odradek.common.events import Event as Event
    from odradek.common.kafka_errors import *  # noqa: F403
    from odradek.common.record_errors import *  # noqa: F403
    from odradek.common.secret import Secret as Secret
    from odradek.common.types import Address as Address
    from odradek.common.types import PartitionFunction as PartitionFunction
    from odradek.common.types import TopicPartition as TopicPartition
    from odradek.record.arrow import ArrowSchemaError as ArrowSchemaError
    from odradek.record.sent_columns import InvalidRowError as InvalidRowError

__version__ = "0.1.0"

_HOME = {
    "Address": "odradek.common.types",
    "AddressReach": "odradek.clients.admin.reachability",
    "Admin": "odradek.api.admin",
    "ApiVersionRange": "odradek.clients.admin.api_versions",
    "ArrowFuture": "odradek.api.record_future",
    "ArrowSchemaError": "odradek.record.arrow",
    "Assignor": "odradek.clients.consumer.group.assignors",
    "AssignorError": "odradek.clients.consumer.group.assignors",
    "BrokerApiVersions": "odradek.clients.admin.api_versions",
    "BrokerDescription": "odradek.clients.descriptions",
    "ClusterDescription": "odradek.clients.admin.admin_engine",
    "Consumer": "odradek.api.consumer",
    "ConsumerGroupMetadata": "odradek.clients.consumer.records",
    "ConsumerRecord": "odradek.clients.consumer.records",
    "DataLossError": "odradek.spark.problems",
    "Event": "odradek.common.events",
    "Explanation": "odradek.clients.explain.explanation",
    "InvalidRowError": "odradek.record.sent_columns",
    "LogTruncationError": "odradek.clients.consumer.records",
    "MemberSubscription": "odradek.clients.consumer.group.assignors",
    "MissingTopicError": "odradek.spark.problems",
    "NewTopic": "odradek.clients.admin.admin_arguments",
    "NoProgressError": "odradek.spark.problems",
    "NoSuchOffsetError": "odradek.clients.consumer.records",
    "OptionError": "odradek.spark.problems",
    "OutageError": "odradek.spark.problems",
    "OffsetAndMetadata": "odradek.clients.consumer.records",
    "OffsetAndTimestamp": "odradek.clients.consumer.records",
    "OffsetRange": "odradek.clients.producer.delivery",
    "PartitionDescription": "odradek.clients.descriptions",
    "PartitionFunction": "odradek.common.types",
    "Producer": "odradek.api.producer",
    "Reachability": "odradek.clients.admin.reachability",
    "RebalanceProtocol": "odradek.clients.consumer.group.assignors",
    "RecordFuture": "odradek.api.record_future",
    "RecordMetadata": "odradek.clients.producer.batch",
    "TopicDescription": "odradek.clients.descriptions",
    "TopicReach": "odradek.clients.admin.reachability",
    "Secret": "odradek.common.secret",
    "TopicPartition": "odradek.common.types",
    "read_properties": "odradek.api.properties",
}
_ERROR_HOMES = (
    "odradek.common.errors",
    "odradek.common.kafka_errors",
    "odradek.common.record_errors",
)


def __getattr__(name: str) -> Any:
    home = _HOME.get(name)
    if home is not None:
        value = getattr(importlib.import_module(home), name)
    elif name.endswith("Error"):
        found = (getattr(importlib.import_module(h), name, None) for h in _ERROR_HOMES)
        value = next((v for v in found if v is not None), None)
    else:
        value = None
    if value is None:
        from odradek.common.habits import missing_name

        raise missing_name(__name__, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    errors = {
        name
        for home in _ERROR_HOMES
        for name in vars(importlib.import_module(home))
        if name.endswith("Error")
    }
    return sorted({*_HOME, *errors, "__version__"})


__all__ = [*_HOME]  # all are text
