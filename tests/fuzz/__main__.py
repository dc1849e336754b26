"""Runs the fuzzers of this folder: python -m tests.fuzz [NAME ...] --seconds N --seed S"""

from __future__ import annotations

import argparse
import importlib
import random
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

PREFIX = "fuzz_"


def names() -> list[str]:
    """Names of the fuzzers in this folder."""
    return sorted(path.stem.removeprefix(PREFIX) for path in Path(__file__).parent.glob(f"{PREFIX}*.py"))


def fuzzer(name: str) -> Callable[[float, int], list[str]]:
    """The function of the fuzzer of that name."""
    fuzz: Callable[[float, int], list[str]] = importlib.import_module(f"tests.fuzz.{PREFIX}{name}").fuzz
    return fuzz


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description="Run fuzzers for a bounded time.")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"fuzzers to run: {', '.join(names())} (default: all)")
    parser.add_argument("--seconds", type=float, default=60.0, help="time for all of them together (default: 60)")
    parser.add_argument("--seed", type=int, help="seed (default: a fresh one, which is printed)")
    options = parser.parse_args(arguments)
    wanted = options.names or names()
    unknown = sorted(set(wanted) - set(names()))
    if unknown:
        parser.error(f"no fuzzer is called {', '.join(unknown)}; there are {', '.join(names())}")
    seed = random.SystemRandom().randrange(2**31) if options.seed is None else options.seed
    failed = 0
    for name in wanted:
        print(f"{name}: seed {seed}", flush=True)
        begin = time.monotonic()
        failures = fuzzer(name)(options.seconds / len(wanted), seed)
        for failure in failures:
            print(f"  {ascii(failure)[1:-1]}", flush=True)
        verdict = "no failures" if not failures else f"{len(failures)} failures; repeat with: {name} --seed {seed}"
        print(f"{name}: {verdict} ({time.monotonic() - begin:.0f} s)", flush=True)
        failed += bool(failures)
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
