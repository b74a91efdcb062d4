"""Analyse clients' events with Spark, and simulate large fleets of clients on executors."""
