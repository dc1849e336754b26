"""Learned models of the systems."""
