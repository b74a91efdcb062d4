"""The producer: records in, acknowledged batches out, in order and without duplicates."""
