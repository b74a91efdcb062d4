"""SASL for Kafka: mechanisms, and the token exchange that authenticates a connection.

In: credentials, or functions that return credentials; a connection after ApiVersions. Out: an
authenticated connection and its session, or an error. Clients without SASL don't import this
package.
"""
