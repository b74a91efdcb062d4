"""Run cells as a notebook does: results become tables, `!odradek` moves no cursor."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

from tests.time_limits import HANG_S

from odradek import Producer
from odradek.testing import FakeCluster

CELLS = [
    """%load_ext odradek
import odradek
admin = odradek.Admin({"bootstrap.servers": KAFKA}); admin.describe_topics(["flights"])""",
    "admin.explain()",
    """async with odradek.AsyncAdmin({"bootstrap.servers": KAFKA}) as other:
    described = await other.describe_cluster()
described""",
    """consumer = odradek.Consumer(
    {"bootstrap.servers": KAFKA, "group.id": "cells", "auto.offset.reset": "earliest"}
)
consumer.assign(consumer.partitions_for("flights"))
consumer.poll_arrow(10).schema""",
    """consumer.commit(); consumer.close(); admin.close()
!{ODRADEK} groups lag --watch --interval 0.1 --count 2 --bootstrap-server {KAFKA}""",
]
MOVES = r"\x1b\[[0-9;?]*[A-HJKhl]"
"""Escape sequences that move a cursor, clear a line, or hide the cursor; colours are allowed."""
SHELL = """
import json, os, sys
from traitlets.config import Config
from IPython.core.interactiveshell import InteractiveShell

config = Config()
config.HistoryManager.enabled = False
shell = InteractiveShell.instance(config=config)
shell.push({"KAFKA": os.environ["KAFKA"], "ODRADEK": os.environ["ODRADEK"]})
for cell in json.loads(sys.argv[1]):
    done = shell.run_cell(cell)
    done.raise_error()
    if done.result is not None:
        shown, _ = shell.display_formatter.format(done.result)
        print("\\nHTML", shown["text/html"])
"""


def test_notebook_cells_show_tables_and_never_move_the_cursor(tmp_path: Path) -> None:
    with FakeCluster(brokers=1, topics={"flights": 2}) as fake:
        with Producer({"bootstrap.servers": fake.bootstrap_servers}) as producer:
            producer.send("flights", b"JFK").result(30)
        done = subprocess.run(
            [sys.executable, "-c", SHELL, json.dumps(CELLS)],
            env={
                # IPython uses the packages of a virtual environment in VIRTUAL_ENV, and warns if it
                # has none.
                **{name: value for name, value in os.environ.items() if name != "VIRTUAL_ENV"},
                "KAFKA": fake.bootstrap_servers,
                "ODRADEK": str(Path(sys.executable).parent / "odradek"),
                "IPYTHONDIR": str(tmp_path),
                "JPY_PARENT_PID": "1",  # set by Jupyter kernels
                "TERM": "xterm-color",
            },
            capture_output=True,
            text=True,
            timeout=HANG_S,
            check=False,
        )
    assert (done.returncode, done.stderr) == (0, "")
    topics, explained, cluster, schema = (
        line for line in done.stdout.splitlines() if line.startswith("HTML")
    )
    assert "<td>flights</td>" in topics
    assert "<p><b>Admin" in explained
    assert f"<td>{fake.cluster_id}</td>" in cluster
    assert "<td>value</td><td>binary</td>" in schema
    watched = done.stdout.partition(schema)[2]
    assert watched.count("cells") >= 2
    assert re.findall(MOVES, watched) == []
