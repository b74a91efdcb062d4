"""Results of the JVM connector for each case, kept in `jvm_answers.json`.

The connector runs on a pinned Spark (4.2.0) with the same topics each time, so its results are the
same each time, and running it takes more than a minute. `make test` compares with the kept results;
`make test-long` runs the connector and compares its results with the kept ones too. After a change
of the cases, `ODRADEK_KEEP_JVM_ANSWERS=1 make test-long SUITES=spark` updates the file.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.spark.parity_cases import Case
from tests.volume import PART

ASKED = PART == 1
"""Whether this run runs the connector itself."""
KEEPS = ASKED and os.environ.get("ODRADEK_KEEP_JVM_ANSWERS", "") not in ("", "0")
_FILE = Path(__file__).with_suffix(".json")
_WORDS = 300
"""Characters kept of an error's text: its beginning has the reason, the rest is Java's stack."""
_LOG_APPEND_TIME = 1

Written = list[tuple[Any, ...]]


def keep(cases: Sequence[Case], answers: dict[str, Any], written: Written) -> None:
    """Write the connector's results of these cases, and the records that it wrote."""
    lines = [
        json.dumps({"case": _asked(case), "answer": _brief(answers[case.name])}) for case in cases
    ]
    lines.append(json.dumps({"written": _as_json(written)}))
    _FILE.write_text("\n".join(lines) + "\n")


def kept(cases: Sequence[Case]) -> tuple[dict[str, Any], Written]:
    """Return the kept results by case name, and the records; a new case has none."""
    found = [json.loads(line) for line in _FILE.read_text().splitlines()]
    written = found.pop()["written"]
    asked = {one["case"]["name"]: one for one in found}
    for case in cases:
        assert asked[case.name]["case"] == _asked(case), f"the case {case.name} has changed"
    return {name: one["answer"] for name, one in asked.items()}, _from_json(written)


def comparable(answer: dict[str, Any]) -> dict[str, Any]:
    """Return a result without the times at which a broker appended records."""
    if "error" in answer:
        return {"error": True}
    rows = [
        [*row[:5], None, *row[6:]] if row[6] == _LOG_APPEND_TIME else row
        for row in answer.get("rows", ())
    ]
    return answer | ({"rows": rows} if "rows" in answer else {})


def _asked(case: Case) -> dict[str, Any]:
    asked: dict[str, Any] = json.loads(json.dumps(case.for_side("jvm", "the cluster")))
    return asked


def _brief(answer: dict[str, Any]) -> dict[str, Any]:
    return {"error": answer["error"][:_WORDS]} if "error" in answer else comparable(answer)


def _as_json(written: Written) -> list[Any]:
    return [
        [_hex(value), _hex(key), partition, headers and [[name, _hex(v)] for name, v in headers]]
        for value, key, partition, headers in written
    ]


def _from_json(written: list[Any]) -> Written:
    return [
        (_bytes(value), _bytes(key), partition, headers and [(n, _bytes(v)) for n, v in headers])
        for value, key, partition, headers in written
    ]


def _hex(data: bytes | None) -> str | None:
    return None if data is None else data.hex()


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else bytes.fromhex(text)
