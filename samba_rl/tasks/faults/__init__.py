"""Containment of systems that misbehave: NaN, exceptions, hangs and dead processes."""
