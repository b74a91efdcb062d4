"""An environment with Spark 4.2.0 and its JVM connector for Kafka, beside which ours is held.

Tests compare rows and errors, `benchmarks.spark` times. It is made on first use from package
registries alone, kept in the user's cache, and reported as missing with the reason where it can't
be had. Must not: be needed by anything but comparisons.
"""
