"""SASL for Kafka: mechanisms, and the conversation that authenticates a connection.

In: credentials, or functions that return them; a connection after ApiVersions. Out: an
authenticated connection and its session, or a typed error. A client without SASL imports nothing
from here.
"""
