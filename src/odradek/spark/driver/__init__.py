"""What runs once for a query: where it starts, where the cluster ends, and what to read next."""
