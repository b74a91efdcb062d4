"""Bytes to messages and back, in every version that Kafka 4 brokers speak.

In: frames, or dataclasses and a version. Out: dataclasses, or buffers. Must not: know connections.
"""
