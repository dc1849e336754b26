"""PlaNet: a latent model learned from real sequences, and a planner on it as the policy."""
