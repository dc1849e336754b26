"""Gymnasium environments as tasks, and tasks as Gymnasium environments."""
