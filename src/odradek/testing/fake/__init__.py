"""Simulated Kafka brokers on real loopback sockets."""
