"""The admin client and its values, as `confluent_kafka.admin` has them, as far as ours goes.

Topics are made, deleted and described, and so is the cluster; the rest says that it isn't there.
"""

from __future__ import annotations

from odradek.compat.confluent_kafka.admin.client import AdminClient
from odradek.compat.confluent_kafka.admin.values import (
    DescribeClusterResult,
    NewTopic,
    TopicDescription,
)
from odradek.compat.confluent_kafka.cluster_metadata import (
    BrokerMetadata,
    ClusterMetadata,
    PartitionMetadata,
    TopicMetadata,
)
from odradek.compat.confluent_kafka.kafka_error import KafkaError, KafkaException
from odradek.compat.confluent_kafka.topic_partition import OFFSET_INVALID

__all__ = [
    "OFFSET_INVALID",
    "AdminClient",
    "BrokerMetadata",
    "ClusterMetadata",
    "DescribeClusterResult",
    "KafkaError",
    "KafkaException",
    "NewTopic",
    "PartitionMetadata",
    "TopicDescription",
    "TopicMetadata",
]
