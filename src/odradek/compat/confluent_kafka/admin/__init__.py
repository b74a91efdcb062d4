"""The admin client and its values, as `confluent_kafka.admin` has them, as far as ours goes.

Topics are made, deleted and described, and so is the cluster; the rest says that it isn't there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

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
MISSING_VALUES = frozenset(
    (
        *("AclBinding", "AclBindingFilter", "AclOperation", "AclPermissionType"),
        *("AlterConfigOpType", "ConfigEntry", "ConfigResource", "ConfigSource"),
        *("ConsumerGroupDescription", "ConsumerGroupListing", "ListConsumerGroupsResult"),
        *("GroupMember", "GroupMetadata", "MemberAssignment", "MemberDescription"),
        *("DeletedRecords", "ListOffsetsResultInfo", "NewPartitions", "OffsetSpec"),
        *("ResourcePatternType", "ResourceType", "ScramCredentialInfo", "ScramMechanism"),
        *("UserScramCredentialAlteration", "UserScramCredentialDeletion"),
        *("UserScramCredentialUpsertion", "UserScramCredentialsDescription"),
    )
)
"""Classes of theirs for calls that our admin client has nothing for."""

if not TYPE_CHECKING:  # a checker of types goes on to refuse names that aren't there

    def __getattr__(name: str) -> object:
        if name in MISSING_VALUES:  # an AttributeError's text is seen by nobody who writes `import`
            raise ImportError(
                f"{name} isn't in this release of Odradek, whose admin client makes, deletes and "
                "describes topics, and describes the cluster: for the rest, import it from "
                "confluent_kafka.admin, with the AdminClient there; both can be used side by side",
                name=name,
            )
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
