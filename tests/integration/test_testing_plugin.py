"""Run the examples of docs/testing.md with `kafka_cluster` and `kafka_topic` on real brokers."""

from __future__ import annotations

import pytest
from tests.unit.testing.test_docs_testing import blocks

from odradek.testing.java import cache_directory

pytest_plugins = ["pytester"]
CACHE = cache_directory()
"""Cache of Kafka's jars; a run inside the test has its own home and would download them again."""


@pytest.mark.long  # shorter tests: unit/testing/test_plugin.py, with clusters that aren't real
@pytest.mark.timeout(600)
def test_the_pages_examples_pass_and_brokers_are_restored_between_tests(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(CACHE.parent))
    (text, passed), (secured, more) = blocks("real")["cluster"], blocks("real")["secured"]
    pytester.makepyfile(
        test_page=text,
        test_secured=secured,
        test_then="""
        import odradek

        topics = []

        def test_all_brokers_run_again(kafka_cluster, kafka_topic):
            assert kafka_cluster.running == (0, 1, 2)
            kafka_cluster.pause(0)
            kafka_cluster.kill(2)
            topics.append(kafka_topic)

        def test_and_again(kafka_cluster, kafka_topic):
            assert kafka_cluster.running == (0, 1, 2)
            with odradek.Admin(bootstrap_servers=kafka_cluster.bootstrap_servers) as admin:
                names = admin.list_topics(timeout=60)
            assert {*topics, kafka_topic} <= set(names)
            assert kafka_topic.startswith("test_and_again-")
            assert kafka_topic not in topics
        """,
    )
    done = pytester.runpytest_subprocess("-W", "error", "-p", "no:randomly", "--timeout=120")
    done.assert_outcomes(passed=passed + more + 2)
