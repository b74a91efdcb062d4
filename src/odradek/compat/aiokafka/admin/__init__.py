"""aiokafka's admin client, as far as it is supported."""

from odradek.compat.aiokafka.admin.client import AIOKafkaAdminClient
from odradek.compat.aiokafka.admin.new_topic import NewTopic

__all__ = ["AIOKafkaAdminClient", "NewTopic"]
