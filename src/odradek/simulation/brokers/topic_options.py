"""List the topic options of Kafka 4.4, each with its default and Kafka's number for its type.

In: nothing. Out: a table; brokers reject names that aren't in it. Must not implement any option.
"""

from __future__ import annotations

TOPIC_OPTIONS: dict[str, tuple[str, int]] = {
    "cleanup.policy": ("delete", 7),
    "compression.gzip.level": ("-1", 3),
    "compression.lz4.level": ("9", 3),
    "compression.type": ("producer", 2),
    "compression.zstd.level": ("3", 3),
    "delete.retention.ms": ("86400000", 5),
    "errors.deadletterqueue.group.enable": ("false", 1),
    "file.delete.delay.ms": ("60000", 5),
    "flush.messages": ("9223372036854775807", 5),
    "flush.ms": ("9223372036854775807", 5),
    "follower.replication.throttled.replicas": ("", 7),
    "index.interval.bytes": ("4096", 3),
    "leader.replication.throttled.replicas": ("", 7),
    "local.retention.bytes": ("-2", 5),
    "local.retention.ms": ("-2", 5),
    "max.compaction.lag.ms": ("9223372036854775807", 5),
    "max.decompressed.message.bytes": ("2147483639", 3),
    "max.message.bytes": ("1048588", 3),
    "message.timestamp.after.max.ms": ("3600000", 5),
    "message.timestamp.before.max.ms": ("9223372036854775807", 5),
    "message.timestamp.type": ("CreateTime", 2),
    "min.cleanable.dirty.ratio": ("0.5", 6),
    "min.compaction.lag.ms": ("0", 5),
    "min.insync.replicas": ("1", 3),
    "preallocate": ("false", 1),
    "remote.copy.lag.bytes": ("-1", 5),
    "remote.copy.lag.ms": ("0", 5),
    "remote.log.copy.disable": ("false", 1),
    "remote.log.delete.on.disable": ("false", 1),
    "remote.storage.enable": ("false", 1),
    "retention.bytes": ("-1", 5),
    "retention.ms": ("604800000", 5),
    "segment.bytes": ("1073741824", 3),
    "segment.index.bytes": ("10485760", 3),
    "segment.jitter.ms": ("0", 5),
    "segment.ms": ("604800000", 5),
    "unclean.leader.election.enable": ("false", 1),
}
