"""Time the import of some modules in a new interpreter, without the interpreter's start."""

from __future__ import annotations

import importlib
import json
import sys
import time

if __name__ == "__main__":
    begin = time.perf_counter()
    for name in sys.argv[1:]:
        importlib.import_module(name)
    seconds = time.perf_counter() - begin
    print(json.dumps({"library": sys.argv[1], "import_ms": 1000 * seconds}))
