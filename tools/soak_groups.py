"""`make soak-groups`: members of real groups under SIGSTOP, and topics deleted and recreated.

Members are programs of their own that hold records while they are stopped for longer than their
sessions, and commit them when they wake; topics are recreated under members that hold records of
the old ones. Progress goes to the screen, the report to a JSON file, what members were handed to a
folder beside it. The exit status is 0 when nothing was lost and no committed offset went back or
came from another topic, 1 otherwise.
"""

import argparse
import random
import sys
from pathlib import Path

from odradek.testing.jars import DEFAULT_VERSION

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))  # what runs is also the tests' own

from tests.soak.group_soak import KINDS, GroupPlan, as_json, run  # noqa: E402


def main() -> None:
    """Run as long as the command line says."""
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
    parser.add_argument("--kinds", nargs="+", default=list(KINDS), choices=list(KINDS))
    parser.add_argument("--members", type=int, default=3, help="of each group")
    parser.add_argument("--json", type=Path, default=ROOT / "build" / "soak-groups.json")
    chosen = parser.parse_args()
    chosen.json.parent.mkdir(parents=True, exist_ok=True)
    reports = []
    for version in chosen.kafka:
        print(f"{chosen.minutes:g} minutes on Kafka {version}, seed {chosen.seed}", flush=True)
        plan = GroupPlan(
            seconds=chosen.minutes * 60,
            seed=chosen.seed,
            kafka=version,
            kinds=tuple(chosen.kinds),
            members=chosen.members,
            folder=chosen.json.with_suffix("") / version,
        )
        reports.append(run(plan, lambda line: print(line, flush=True)))
        print(as_json(reports[-1]), flush=True)
        chosen.json.write_text("[" + ",\n".join(map(as_json, reports)) + "]\n")
    ok = all(report.ok for report in reports)
    print(f"{'no record lost, no offset moved back' if ok else 'FAILED'}: {chosen.json}")
    sys.exit(0 if ok else 1)


if __name__ == "__main__":
    main()
