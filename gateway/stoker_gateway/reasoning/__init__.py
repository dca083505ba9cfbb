"""Where a model's reasoning is in its text."""
