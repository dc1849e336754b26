"""PlaNet: a latent model and a planner that is the policy."""
