"""`make soak-spark`: check a Spark pipeline for lost or repeated records under faults.

Records go from a topic to an exactly-once topic and on to exactly-once Parquet, on separate
executors. Meanwhile driver, workers, executors and brokers are killed, brokers are paused and
moved, queries are restarted from their checkpoints, and all brokers are down for a long time once.
Progress is printed; the report is a JSON file. The exit status is 0 if every record exists exactly
once, otherwise 1.
"""

import argparse
import math
import random
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))  # to import `tests.soak`

from tests.soak.spark_soak import FAULTS, MASTER, SparkPlan, as_json, run  # noqa: E402


def main() -> None:
    """Cause as many faults as the command line says."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--faults", type=int, default=50)
    parser.add_argument("--minutes", type=float, default=math.inf, help="no new fault after these")
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 30))
    parser.add_argument("--rate", type=float, default=100.0, help="records a second")
    parser.add_argument("--outage", type=float, default=120.0, help="seconds without any broker")
    parser.add_argument(
        "--patience", type=float, default=240.0, help="seconds until queries must have recovered"
    )
    parser.add_argument("--kinds", nargs="+", default=list(FAULTS), choices=sorted(set(FAULTS)))
    parser.add_argument("--stages", nargs="+", default=["copy", "land"], choices=["copy", "land"])
    parser.add_argument("--master", default=MASTER)
    parser.add_argument("--folder", type=Path, help="keep the checkpoints, files and logs here")
    parser.add_argument("--json", type=Path, default=ROOT / "build" / "soak-spark.json")
    chosen = parser.parse_args()
    chosen.json.parent.mkdir(parents=True, exist_ok=True)
    print(f"{chosen.faults} faults, seed {chosen.seed}", flush=True)
    with tempfile.TemporaryDirectory(prefix="odradek-soak-", ignore_cleanup_errors=True) as made:
        folder = chosen.folder or Path(made)
        folder.mkdir(parents=True, exist_ok=True)
        plan = SparkPlan(
            faults=chosen.faults,
            folder=folder.resolve(),
            seconds=chosen.minutes * 60,
            seed=chosen.seed,
            kinds=tuple(chosen.kinds),
            stages=tuple(chosen.stages),
            master=chosen.master,
            rate=chosen.rate,
            outage=chosen.outage,
            patience=chosen.patience,
            drain=2 * chosen.patience,
        )
        report = run(plan, lambda line: print(line, flush=True))
    chosen.json.write_text(as_json(report) + "\n")
    print(as_json(report))
    print(f"{'every record exactly once' if report.ok else 'FAILED'}: {chosen.json}")
    sys.exit(0 if report.ok else 1)


if __name__ == "__main__":
    main()
