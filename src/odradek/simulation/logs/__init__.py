"""Logs of partitions, the topics that hold them, and who leads each partition."""
