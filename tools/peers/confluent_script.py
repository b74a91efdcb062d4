"""Run the parts of confluent-kafka's older integration tests, which are a script, as tests.

In: their `tests/integration/integration_test.py`, in whose folder this is copied. Later parts read
what earlier parts wrote, as in the script.
"""

import pytest
import tests.integration.integration_test as script

dr_only_error = script.test_producer_dr_only_error
script.test_producer_dr_only_error = lambda: None  # replaced, because PARTS contains it
PARTS = {
    "verify_producer": script.verify_producer,
    "test_producer_dr_only_error": dr_only_error,
    "verify_producer_performance_with_dr_cb": script.verify_producer_performance,
    "verify_producer_performance_without_dr_cb": lambda: script.verify_producer_performance(False),
    "verify_consumer": script.verify_consumer,
    "verify_batch_consumer": script.verify_batch_consumer,
    "verify_consumer_performance": script.verify_consumer_performance,
    "verify_batch_consumer_performance": script.verify_batch_consumer_performance,
    "verify_stats_cb": script.verify_stats_cb,
    "verify_throttle_cb": script.verify_throttle_cb,
    "verify_schema_registry_client": script.verify_schema_registry_client,
    "verify_avro": script.verify_avro,
    "verify_avro_explicit_read_schema": script.verify_avro_explicit_read_schema,
    "verify_avro_https": lambda: script.verify_avro_https({}),
    "verify_avro_basic_auth": lambda: script.verify_avro_basic_auth({}),
}


@pytest.fixture(scope="module", autouse=True)
def names(kafka_cluster):
    """Set the brokers and the topic, which the script reads from its configuration."""
    script.bootstrap_servers = kafka_cluster.client_conf()["bootstrap.servers"]
    script.topic = kafka_cluster.create_topic_and_wait_propogation("script", {"num_partitions": 3})


@pytest.mark.timeout(240)
@pytest.mark.parametrize("part", PARTS)
def test_script(part):
    """Run one part of the script as a test."""
    PARTS[part]()
