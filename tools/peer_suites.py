"""Run another library's own tests against the module in its place: `tools/peer_suites.py CHECKOUT`.

In: a checkout of aiokafka 0.14.0 (its source distribution has no tests). Out: how many of its tests
about behaviour passed and failed, and how many were left out, each with the reason. Its tests are
copied into a temporary folder, with a `conftest` of ours; none of its code is kept. Must not:
change the checkout.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from odradek.testing import LocalCluster

CONFTEST = Path(__file__).parent / "peers" / "aiokafka_conftest.py"
SUITES = (
    *("test_admin", "test_consumer", "test_helpers", "test_partitioner", "test_pep492"),
    *("test_producer", "test_transactional_consumer", "test_transactional_producer"),
)
"""What is about behaviour; the others test modules that only aiokafka has."""
PATIENCE = 60
"""Seconds for one test."""
ALL = 1500
"""Seconds for all."""


@contextmanager
def broker(servers: str) -> Iterator[str]:
    """The address of a broker that makes topics of two partitions, as aiokafka's container does."""
    if servers:
        yield servers
        return
    settings = {"num.partitions": "2"}
    with LocalCluster(1, auto_create_topics=True, config=settings) as cluster:
        yield cluster.bootstrap_servers


def outcomes(checkout: Path, servers: str, expression: str) -> list[tuple[str, str, str]]:
    """Each test's name, outcome and reason."""
    with tempfile.TemporaryDirectory() as folder:
        tests, report = Path(folder, "tests"), Path(folder, "report")
        shutil.copytree(checkout / "tests", tests)
        shutil.copy(CONFTEST, tests / "conftest.py")
        report.touch()
        chosen = ["-k", expression] if expression else []
        subprocess.run(
            [sys.executable, "-m", "pytest", "-q", "-p", "no:randomly", "-p", "no:cacheprovider",
             "-W", "ignore", f"--timeout={PATIENCE}", *chosen,
             *(f"tests/{suite}.py" for suite in SUITES)],
            cwd=folder, check=False, timeout=ALL,
            env={**os.environ, "PEER_SERVERS": servers, "PEER_REPORT": str(report)},
        )  # fmt: skip
        rows = [tuple(json.loads(line)) for line in report.read_text().splitlines()]
    return list({name: (name, outcome, why) for name, outcome, why in rows}.values())


def summary(rows: list[tuple[str, str, str]]) -> Iterator[str]:
    """What is printed."""
    counts = Counter(outcome for _, outcome, _ in rows)
    for title, wanted in (("left out", "skipped"), ("failed", "failed")):
        yield f"{title}:"
        yield from (f"  {name}: {why}" for name, outcome, why in rows if outcome == wanted)
    ran = counts["passed"] + counts["failed"]
    share = 100 * counts["passed"] / ran if ran else 0.0
    yield (
        f"{counts['passed']} passed, {counts['failed']} failed ({share:.0f} % of {ran}), "
        f"{counts['skipped']} left out"
    )


def main() -> None:
    """Read the arguments, run, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("checkout", type=Path, help="aiokafka's sources with their tests")
    parser.add_argument("--servers", default="", help="a broker's host:port; else one is started")
    parser.add_argument("-k", dest="expression", default="", help="which tests, as for pytest")
    given = parser.parse_args()
    if not (given.checkout / "tests").is_dir():
        sys.exit(f"{given.checkout} has no folder tests: give a checkout of aiokafka's repository")
    with broker(given.servers) as servers:
        rows = outcomes(given.checkout, servers, given.expression)
    print(*summary(rows), sep="\n")
    sys.exit(any(outcome == "failed" for _, outcome, _ in rows))


if __name__ == "__main__":
    main()
