"""Test an admin client's calls from many threads and tasks, after a fork, and during close()."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from tests.unit.api.loopback_scene import PATIENCE
from tests.unit.runtime.test_fork import in_child

from odradek.api.admin import Admin
from odradek.api.asyncio_admin import AsyncAdmin
from odradek.common.errors import ClientClosedError, ClientForkedError, IllegalStateError
from odradek.common.types import TopicPartition
from odradek.testing import FakeCluster

THREADS, TURNS = 8, 15
T0 = TopicPartition("t", 0)


@pytest.fixture(scope="module")
def cluster() -> Iterator[FakeCluster]:
    with FakeCluster(2, topics=["t:2", "u"]) as running:
        yield running


@pytest.fixture
def settings(cluster: FakeCluster) -> dict[str, str]:
    return {"bootstrap.servers": cluster.bootstrap_servers}


@pytest.fixture
def slow(cluster: FakeCluster) -> Iterator[None]:
    """Make DescribeCluster slow."""
    cluster.delay("DescribeCluster", 0.3)
    yield
    cluster.delay("DescribeCluster", 0.0)


def until_sent(cluster: FakeCluster) -> Callable[[], None]:
    """Return a function that waits until a slow call has been sent."""
    before = cluster.requests()["DescribeCluster"]

    def wait() -> None:
        for _ in range(int(PATIENCE / 0.01)):
            if cluster.requests()["DescribeCluster"] > before:
                return
            time.sleep(0.01)
        raise TimeoutError("nothing is asked")

    return wait


def test_each_thread_gets_the_results_of_its_own_calls(settings: dict[str, str]) -> None:
    with Admin(settings, background=True) as admin, ThreadPoolExecutor(THREADS) as pool:

        def work(number: int) -> None:
            group = f"g{number}"
            for turn in range(TURNS):
                topic = ("t", "u")[(number + turn) % 2]
                assert list(admin.describe_topics([topic])) == [topic]
                admin.alter_group_offsets(group, {T0: number * TURNS + turn})
                found = admin.list_group_offsets(group)[group][T0]
                assert found.offset == number * TURNS + turn

        for done in [pool.submit(work, number) for number in range(THREADS)]:
            done.result(PATIENCE)


@pytest.mark.usefixtures("slow")
def test_a_concurrent_call_raises_an_error_that_suggests_background_true(
    cluster: FakeCluster, settings: dict[str, str]
) -> None:
    under_way = until_sent(cluster)
    with Admin(settings) as admin, ThreadPoolExecutor(1) as pool:
        first = pool.submit(admin.describe_cluster)
        under_way()
        with pytest.raises(IllegalStateError, match="background=True"):
            admin.list_topics()
        assert len(first.result(PATIENCE).brokers) == 2


@pytest.mark.usefixtures("slow")
@pytest.mark.parametrize("background", [False, True])
def test_close_ends_pending_calls(
    cluster: FakeCluster, settings: dict[str, str], background: bool
) -> None:
    under_way = until_sent(cluster)
    cluster.delay("DescribeCluster", PATIENCE)
    admin = Admin(settings, background=background)
    with ThreadPoolExecutor(THREADS) as pool:
        calls = [pool.submit(admin.describe_cluster) for _ in range(THREADS if background else 1)]
        under_way()
        admin.close()
        for call in calls:
            with pytest.raises(ClientClosedError):
                call.result(PATIENCE)
    with pytest.raises(ClientClosedError):
        admin.list_topics()


@pytest.mark.usefixtures("slow")
@pytest.mark.parametrize("background", [False, True])
def test_a_fork_during_a_call_breaks_only_the_childs_copy_of_the_client(
    cluster: FakeCluster, settings: dict[str, str], background: bool
) -> None:
    under_way = until_sent(cluster)

    def child() -> None:
        with pytest.raises(ClientForkedError):
            admin.list_topics()
        admin.close()
        with Admin(settings) as own:
            assert own.list_topics() == ["t", "u"]

    with Admin(settings, background=background) as admin, ThreadPoolExecutor(1) as pool:
        call = pool.submit(admin.describe_cluster)
        under_way()
        in_child(child)
        assert len(call.result(PATIENCE).brokers) == 2
        assert admin.list_topics() == ["t", "u"]


@pytest.mark.usefixtures("slow")
def test_cancelling_a_task_ends_only_its_own_call_and_close_ends_pending_ones(
    cluster: FakeCluster, settings: dict[str, str]
) -> None:
    async def scene() -> list[object]:
        admin = AsyncAdmin(settings)
        await admin.list_topics()
        tasks = [asyncio.create_task(admin.describe_cluster()) for _ in range(4)]
        await asyncio.sleep(0)
        tasks[0].cancel()
        found = await asyncio.gather(*tasks, return_exceptions=True)
        left = [asyncio.create_task(admin.describe_cluster()) for _ in range(3)]
        await asyncio.sleep(0)
        await admin.close()
        return [*found, *await asyncio.gather(*left, return_exceptions=True)]

    cancelled, *rest = asyncio.run(scene())
    assert isinstance(cancelled, asyncio.CancelledError)
    names = [type(one).__name__ for one in rest]
    assert names == ["ClusterDescription"] * 3 + ["ClientClosedError"] * 3
