"""Property tests draw the same cases every time, so that a test turns red by what was changed and not by chance.

To look for cases that nobody has met yet: HYPOTHESIS_PROFILE=explore make test

Every process computes on one thread, since the tests already share the cores: two threads each take half as long again.
"""

from __future__ import annotations

import os

from hypothesis import settings

os.environ.setdefault("OMP_NUM_THREADS", "1")  # read once, when torch is first imported

from samba_rl.runs import train

settings.register_profile("same", derandomize=True)
settings.register_profile("explore", derandomize=False)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "same"))

# A run of a test is written only where the test says so; users' runs go to a folder of their own.
assert train.__kwdefaults__ is not None
train.__kwdefaults__["out"] = None
