"""The admin client of aiokafka, by its names, as far as this package's goes."""

from odradek.compat.aiokafka.admin.client import AIOKafkaAdminClient
from odradek.compat.aiokafka.admin.new_topic import NewTopic

__all__ = ["AIOKafkaAdminClient", "NewTopic"]
