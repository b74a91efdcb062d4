"""A Kafka cluster without Kafka on loopback sockets."""
