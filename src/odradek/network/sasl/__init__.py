"""SASL as Kafka speaks it: mechanisms, and the conversation on a connection that uses them.

Nothing here is imported for a client without SASL.
"""
