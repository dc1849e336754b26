"""Pictures of what happened."""
