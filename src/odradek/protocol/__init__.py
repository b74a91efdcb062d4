"""Convert bytes to messages and back, in all API versions that Kafka 4 brokers support.

In: frames, or messages and a version. Out: messages, or buffers. Must not: know connections.
"""
