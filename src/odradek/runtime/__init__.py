"""Run engines over real connections: sockets, threads, TLS, names, forks.

In: an engine's effects. Out: real events, as the engine's inputs. Must not decide anything about
Kafka, or be imported by a package below. Importing it starts no thread, opens no socket and seeds
no generator.
"""
