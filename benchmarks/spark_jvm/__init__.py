"""An environment with Spark 4.2.0 and its JVM connector for Kafka, to compare ours with.

Tests compare rows and errors, `benchmarks.spark` compares times. It is created at the first use
from package registries, kept in the user's cache, and reported as missing with the reason if it
isn't available. Must not: be needed by anything but comparisons.
"""
