"""Keep a misbehaving system from taking the run along."""
