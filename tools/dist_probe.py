"""Try an installed Odradek: the README's Produce and Consume on a cluster in this process.

In: the README, and the kernels that must run (`native`, or `python` without compiled ones). Out:
one line, or the assertion that failed. It runs with any Python that has Odradek installed, needs
nothing else, and must not import the checkout's sources.
"""

import contextlib
import io
import re
import sys
import time
from pathlib import Path

import odradek
from odradek import record
from odradek.testing import FakeCluster

SNIPPET = re.compile(r"<!-- snippet: (produce|consume) -->\n```python\n(.*?)```", re.DOTALL)
RECORDS = 1001
"""Number of records that Produce sends."""


def main(readme: str, kernel: str) -> None:
    """Run both programs of the README and check their output."""
    sources = Path(__file__).resolve().parent.parent / "src"
    assert not Path(odradek.__file__).is_relative_to(sources), odradek.__file__
    warning = record.kernel_warning()
    assert record.KERNEL == kernel, f"kernels are {record.KERNEL}: {warning}"
    assert bool(warning) == (kernel == "python"), warning
    snippets = dict(SNIPPET.findall(Path(readme).read_text(encoding="utf-8")))
    said, start = io.StringIO(), time.monotonic()
    with FakeCluster(brokers=3, topics=["flights:3"]) as cluster:
        for name in ("produce", "consume"):
            program = snippets[name].replace("localhost:9092", cluster.bootstrap_servers)
            with contextlib.redirect_stdout(said):
                exec(program, {})
    lines = said.getvalue().splitlines()
    assert len(lines) == 1 + RECORDS, (len(lines), lines[-3:])
    assert any("b'N14228' b'JFK'" in line for line in lines[1:]), lines[:3]
    python = sys.version.split()[0]
    seconds = time.monotonic() - start
    print(f"{kernel} kernels, Python {python}, the README's example in {seconds:.1f} s")


if __name__ == "__main__":
    main(*sys.argv[1:])
