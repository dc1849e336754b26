"""Pictures of the systems, drawn without a display."""
