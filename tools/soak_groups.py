"""`make soak-groups`: groups with members of five clients that join, close, restart and are killed.

Members of Odradek, Java, librdkafka, aiokafka and kafka-python share groups of each assignor and of
KIP-848. Progress is printed, the report goes to a JSON file, members' events to a folder beside it.
The exit status is 0 if each partition had one owner after each step and no record was lost or
repeated by a fault of Odradek, 1 otherwise. (`make soak` stops members with SIGSTOP and recreates
topics under them.)
"""

import argparse
import random
import sys
from pathlib import Path

from odradek.testing.jars import DEFAULT_VERSION

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))  # to import `tests.soak`

from tests.soak.mixed_soak import KINDS, MixedPlan, as_json, run  # noqa: E402


def main() -> None:
    """Run the groups for as long as the command line says."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--minutes",
        type=float,
        default=15.0,
        help="on each version of Kafka, and some minutes more to start and to finish",
    )
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 30))
    parser.add_argument(
        "--kafka", nargs="+", default=[DEFAULT_VERSION, "3.9.2"], help="versions of the brokers"
    )
    parser.add_argument("--kinds", nargs="+", default=list(KINDS), help="only these groups")
    parser.add_argument("--json", type=Path, default=ROOT / "build" / "soak-groups.json")
    chosen = parser.parse_args()
    chosen.json.parent.mkdir(parents=True, exist_ok=True)
    reports: list[str] = []
    failed = False
    for version in chosen.kafka:
        print(f"{chosen.minutes:g} minutes on Kafka {version}, seed {chosen.seed}", flush=True)
        plan = MixedPlan(
            seconds=chosen.minutes * 60,
            seed=chosen.seed,
            kafka=version,
            kinds=tuple(chosen.kinds),
            folder=chosen.json.with_suffix("") / version,
        )
        report = run(plan, lambda line: print(line, flush=True))
        text = as_json(report)
        print(text, flush=True)
        reports.append(text)
        failed = failed or not report.ok
        chosen.json.write_text("[" + ",\n".join(reports) + "]\n")
    print(f"{'FAILED' if failed else 'one owner, no record lost or repeated'}: {chosen.json}")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
