from __future__ import annotations

import os

from hypothesis import settings

pytest_plugins = ["pytester"]

# dev: what a person runs; ci: the same examples every time; nightly: many, and others each night.
settings.register_profile("dev", deadline=None)
settings.register_profile("ci", deadline=None, derandomize=True)
settings.register_profile("nightly", deadline=None, max_examples=2000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE") or ("ci" if os.environ.get("CI") else "dev"))
