"""Benchmark: a grid of learners, systems and seeds, run in parallel, and the paper's tables of its results."""
