"""Columns of the source: its schema, and values decoded from JSON, Avro and Protobuf.

In: columns as they were fetched. Out: columns of Spark's types.
"""
