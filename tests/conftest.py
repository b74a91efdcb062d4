"""For all tests: properties are searched the same way in every run, so a red run stays red; and all
output is searched for secrets.

`HYPOTHESIS_PROFILE=explore` searches anew each time, for whoever hunts.
"""

from __future__ import annotations

import os

from hypothesis import settings

pytest_plugins = ["tests.planted_secrets"]

settings.register_profile("steady", derandomize=True, deadline=None, database=None)
settings.register_profile("explore", deadline=None)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "steady"))
