"""Transactions of simulated brokers are atomic during faults of the brokers."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

import pytest
from tests.unit.simulation.transactional import NEW, OLD, Producer, Setting

from odradek.common.types import TopicPartition
from odradek.simulation import SimulatedCluster, World
from odradek.simulation.checkers.history import CallResult, History
from odradek.simulation.checkers.history_check import check

SEEDS = 40


def _trouble(world: World, cluster: SimulatedCluster, rng: random.Random) -> None:
    """Inject a random fault that lasts up to some seconds."""

    def pause(i: int) -> None:
        cluster.pause(i)
        world.after(rng.uniform(0.1, 4.0), cluster.heal)

    i = rng.choice(list(cluster.brokers))
    verb: Callable[[], None] = rng.choice(
        [
            lambda: cluster.bounce(i, after=rng.uniform(0.1, 4.0)),
            lambda: pause(i),
            lambda: cluster.hand_over("t", rng.randrange(2)),
            lambda: cluster.hand_over("__transaction_state", rng.randrange(10)),
        ]
    )
    verb()


@pytest.mark.parametrize("seed", range(SEEDS))
def test_transactions_are_atomic_during_faults(seed: int) -> None:
    """The producers never retry; the result of a transaction may remain unknown."""
    setting = Setting(seed)
    rng = random.Random(seed)
    world, cluster = setting.world, setting.cluster
    history = History(lambda: world.now)
    version = rng.choice([OLD, NEW])
    cluster.transactions.finalize(version)
    incarnations: dict[str, int] = {}
    for n in range(25):
        if rng.random() < 0.4:
            world.after(rng.uniform(0.0, 0.5), lambda: _trouble(world, cluster, rng))
        name = rng.choice("xy")
        answer = setting.init(name)
        if answer is None or answer.error_code:
            world.advance(rng.uniform(0.0, 1.0))
            continue
        incarnations[name] = incarnations.get(name, 0) + 1
        producer = Producer(setting, name, answer.producer_id, answer.producer_epoch, version)
        _transact(history, producer, rng, [incarnations[name], n])
    cluster.heal()
    world.advance(100.0)  # open transactions time out and are aborted
    for partition in range(2):
        rows = [(row[0], row[4]) for row in cluster.log("t", partition).visible_rows()]
        history.read("log", TopicPartition("t", partition), rows, complete=True)
        assert cluster.log("t", partition).transactions.open == {}
    assert check(history) == []
    assert any(t.result is CallResult.OK for t in history.transactions)


def _transact(
    history: History, producer: Producer, rng: random.Random, numbers: Sequence[int]
) -> None:
    incarnation, n = numbers
    for again in range(rng.choice([1, 2])):
        made = history.begin(producer.name, incarnation)
        sent: int | None = 0
        for k in range(rng.randrange(1, 4)):
            partition = rng.randrange(2)
            value = f"{producer.name}/{n}/{again}/{k}"
            made.wrote(TopicPartition("t", partition), value)
            sent = producer.send(value.encode(), partition=partition)
            if sent != 0:
                break
        if sent != 0:
            return
        commit = rng.random() < 0.7
        if commit:
            made.commits()
        told = producer.end(commit=commit)
        if told != 0:
            return
        made.ended(CallResult.OK if commit else CallResult.FAIL)
        producer.setting.world.advance(rng.uniform(0.0, 0.1))
