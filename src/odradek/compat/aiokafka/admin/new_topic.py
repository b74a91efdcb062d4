"""`NewTopic`: description of a topic to create, an argument of aiokafka's admin client.

In: a name and numbers. Out: an object with them. Must not: check the cluster's limits; brokers do.
"""

from __future__ import annotations

from collections.abc import Mapping

from odradek.compat.aiokafka.errors import IllegalArgumentError


class NewTopic:
    """Topic to create, with its configuration (`topic_configs`)."""

    def __init__(
        self,
        name: str,
        num_partitions: int,
        replication_factor: int,
        replica_assignments: Mapping[int, list[int]] | None = None,
        topic_configs: Mapping[str, str] | None = None,
    ) -> None:
        """Take partition count and replication factor, or -1 for both and `replica_assignments`.

        Raises `IllegalArgumentError` otherwise. `create_topics` rejects `replica_assignments`.
        """
        counted = num_partitions != -1 and replication_factor != -1
        if counted != (replica_assignments is None):
            raise IllegalArgumentError(
                "expected num_partitions and replication_factor, or replica_assignments"
            )
        self.name = name
        self.num_partitions = num_partitions
        self.replication_factor = replication_factor
        self.replica_assignments = replica_assignments or {}
        self.topic_configs = topic_configs or {}
