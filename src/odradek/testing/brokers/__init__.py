"""Real Kafka brokers, which run as processes on this machine."""
