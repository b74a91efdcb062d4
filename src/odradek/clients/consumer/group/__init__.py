"""Groups: both protocols of membership, commits, and the callbacks of a rebalance."""
