"""A topic to make, as aiokafka's admin client takes it.

In: a name and numbers. Out: those. Must not: know what a cluster allows; brokers say that.
"""

from __future__ import annotations

from collections.abc import Mapping

from odradek.compat.aiokafka.errors import IllegalArgumentError


class NewTopic:
    """A topic to make, with its settings (`topic_configs`)."""

    def __init__(
        self,
        name: str,
        num_partitions: int,
        replication_factor: int,
        replica_assignments: Mapping[int, list[int]] | None = None,
        topic_configs: Mapping[str, str] | None = None,
    ) -> None:
        """Both numbers, or -1 for them and `replica_assignments`; else `IllegalArgumentError`.

        A topic with replicas that are assigned by hand is refused by `create_topics`.
        """
        counted = num_partitions != -1 and replication_factor != -1
        if counted != (replica_assignments is None):
            raise IllegalArgumentError("give both numbers, or replica_assignments")
        self.name = name
        self.num_partitions = num_partitions
        self.replication_factor = replication_factor
        self.replica_assignments = replica_assignments or {}
        self.topic_configs = topic_configs or {}
