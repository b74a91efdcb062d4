"""Columns: the source's schema, and values decoded from JSON and Avro."""
