"""Run a client's engine with real I/O: sockets, threads, TLS, name resolution, forks.

In: an engine's effects, which are I/O operations to do. Out: what happened, as the engine's inputs.
Must not: decide anything about Kafka, or be imported by `clients`, `metadata`, `network` and lower
packages. Importing it starts no thread, opens no socket and seeds no generator.
"""
