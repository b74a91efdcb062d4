"""Spark's daemon of Python workers that imports the workers' modules before it forks them.

Otherwise every worker imports Arrow and the client again, which takes most of its time in these
tests. Spark runs it as `python -m tests.spark.worker_daemon WORKER` (`spark.python.daemon.module`).
The programs that tests start use Spark's own daemon.
"""

from __future__ import annotations

import pyspark.sql.worker.plan_data_source_read
import pyspark.sql.worker.write_into_data_source
import pyspark.worker  # noqa: F401
from pyspark import daemon

import odradek.spark  # noqa: F401

if __name__ == "__main__":
    daemon.manager()
