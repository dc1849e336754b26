"""How a policy is improved: the only rooms that write its parameters."""
