"""Real brokers as processes on this machine."""
