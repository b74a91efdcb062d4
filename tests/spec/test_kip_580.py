"""Run the cases of `kip_580/`; each file name says what the case tests."""

from pathlib import Path

import pytest
from tests.spec.cases import cases
from tests.spec.tables import run_file


@pytest.mark.parametrize("path", cases("kip_580"), ids=lambda p: p.stem)
def test_case(path: Path) -> None:
    run_file(path)
