"""Better policies from traces: objectives, constraints, advantages, updates."""
