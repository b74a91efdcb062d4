"""The producer: records in, acknowledged batches out, in order and without duplicates.

In: records from the callers' threads, metadata, Produce responses. Out: Produce requests; a result
for each record.
"""
