"""Fuzzers: what a program must survive, tried at random. Run them: python -m tests.fuzz [NAME ...] --seconds N --seed S

Each module `fuzz_NAME.py` in this folder has a function `fuzz(seconds, seed)` that returns its failures, one line each.
"""
