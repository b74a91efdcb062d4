"""Commands about topics, partitions, offsets and transactions."""
