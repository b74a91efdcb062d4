"""Avro: serializers with a schema registry, and whole Arrow columns."""
