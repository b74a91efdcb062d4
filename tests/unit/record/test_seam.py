"""Which implementation runs, and what importing it costs."""

from __future__ import annotations

import subprocess
import sys

import pytest

from odradek import record
from odradek.common.errors import ConfigurationError, UnsupportedFeatureError


def test_choice() -> None:
    assert record.KERNEL == "python"
    assert record.choose_kernel(None) == record.choose_kernel("python") == "python"
    with pytest.raises(UnsupportedFeatureError, match="no native kernel"):
        record.choose_kernel("native")
    with pytest.raises(ConfigurationError, match="known are native and python"):
        record.choose_kernel("rust")


def test_records_need_no_arrow_and_no_codec() -> None:
    program = (
        "import sys\n"
        "from odradek import record\n"
        "from odradek.record import arrow\n"
        "builder = record.BatchBuilder(1000, None)\n"
        "builder.append(b'k', b'v', (), 0)\n"
        "assert len(list(record.decode(builder.build(), start_offset=0).columns)) == 1\n"
        "assert not {'pyarrow', 'numpy', 'zstandard', 'threading'} & set(sys.modules)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
