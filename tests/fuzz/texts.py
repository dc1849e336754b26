"""Random values and what surrounds a case: texts that programs stumble over, wrong values, and a time limit."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from typing import Any

TEXTS = [
    "", " ", "x" * 300, "\ud800", "a\udcff", "nan", "NaN", "inf", "-inf", "-1", "0", "1", "2", "0.5", "-0.0", "1e400",
    "1e-400", "9" * 30, str(2**63), str(-(2**63)), "9" * 5000, "true", "True", "None", "none", "..", "../..", "/",
    "/dev/null", "/dev/null/x", "~", "%s", "{}", "[bold]", "[/x]", "\n", "\x1b[31m", "--", "-", "-x", "--x", "ζ", "٣",
    "a,b", ",", "a:b", "*", "\\", "'", '"', "$(id)", "\t", "．", "\u202e", "on", "off", "samba", "paper", "smoke",
    "line", "step", "cpu", "cuda:99", "meta", "cpu:9999999999", "safe-pendulum", "safe-fetch-reach",
]  # fmt: skip
"""Texts to give as an argument."""
PLACES = [
    "os:system", "json:loads", "os:getcwd", "math:pi", "bad.py:task", "bad.py:task:", "./bad.py:task:",
    "bad.py:raises", "bad.py:leaves", "bad.py:needs", "bad.py:none", "bad.py:", "bad:task", "quits.py:task",
    "quits:task", "syntax.py:task", "syntax:task", "breaks.py:task", "breaks:task", "bytes.py:task", ".py:task",
    ".:task", "..a:task", ":", "::", ":task", "a:b:c", "none.py:task", "/:task", "folder.py:task",
    "x" * 300 + ".py:task", "x" * 300 + ":task", "\ud800:task", "\udcff.py:task", "good.py:task", "good:task",
]  # fmt: skip
"""Functions to give where one is named; the files are those of `FILES`."""
FILES = {
    "bad.py": "import sys\ndef task(): return 3\ndef raises(): raise RuntimeError('a\\nb')\ndef leaves(): sys.exit(3)\n"
    "def needs(x): return x\nnone = None\n",
    "quits.py": "import sys\nsys.exit(5)\n",
    "syntax.py": "def (\n",
    "breaks.py": "raise KeyError('x')\n",
    "good.py": "from samba_rl import SafePendulum\ndef task(): return SafePendulum()\n",
    "junk.csv": "x,y\n1,2\n",
    "trial.csv": "time,θ,θ̇,u\n0,3.1,0,1\n0.05,3.1,0.1,1\n0.1,3.1,0.2,\n",
    "run.toml": "system = 'safe-pendulum'\npreset = 'smoke'\n[constraint]\nlimit = 1.5\n",
    "sweep.toml": "system = 'safe-pendulum'\npreset = 'smoke'\nseed = [0, 1]\n",
    "empty.json": "",
}
"""Files of the folder in which commands run."""
NUMBERS: list[Any] = [
    float("nan"), float("inf"), -float("inf"), -1, -1.0, 0, 0.0, -0.0, 1, 1.0, 2, 0.5, 1e-300, 5e-324, 1e-9, 1e9,
    1e300, 1e308, -1e308, 10**9, 10**9 + 1, 2**31, 2**63, 10**30, 10**400, 10**5000, -(10**30), 3, 7, 0.999, 1.0001,
    100, 101,
]  # fmt: skip
"""Numbers to set."""
WRONG: list[Any] = [
    None, "", "1", "nan", "inf", "x", "\ud800", "a\0", True, False, [], [1], (), (1,), (1.0, 2.0), (2.0, 1.0),
    (32, 32), (0,), (-1, 5), ("a",), {}, {"limit": 1}, 1j, b"1", object(), float, "on", "off", "step",
]  # fmt: skip
"""Values of other kinds to set."""


class Hangs(Exception):  # noqa: N818 - what a case does
    """Raised when a case takes too long."""


@contextlib.contextmanager
def at_most(seconds: int) -> Iterator[None]:
    """Raise `Hangs` after so many seconds; only the main thread can be interrupted."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def ring(*_: object) -> None:
        raise Hangs(f"it takes more than {seconds} s")

    before = signal.signal(signal.SIGALRM, ring)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
