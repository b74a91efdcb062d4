"""How long `import MODULE` takes in this fresh interpreter; its start isn't counted."""

from __future__ import annotations

import importlib
import json
import sys
import time

if __name__ == "__main__":
    begin = time.perf_counter()
    module = importlib.import_module(sys.argv[1])
    seconds = time.perf_counter() - begin
    print(json.dumps({"library": module.__name__, "import_ms": 1000 * seconds}))
