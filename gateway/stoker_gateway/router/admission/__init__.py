"""Which requests may go on: who asks, how much of a budget is left, and whether a replica can take one more."""
