"""Tool calls in a model's text: one parser per format, and what the format looks like to a grammar."""
