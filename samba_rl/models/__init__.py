"""Gaussian-process models of the systems, and imagined episodes on them."""
