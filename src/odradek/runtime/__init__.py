"""The real world: sockets, threads, TLS, names, forks. Runs engines over real connections.

In: an engine's effects. Out: what really happened, as the engine's inputs. Must not: decide
anything about Kafka; be imported by a room below. Importing it starts no thread, opens no socket
and seeds no generator.
"""
