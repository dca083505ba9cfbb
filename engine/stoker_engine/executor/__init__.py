"""Executor: how the engine core reaches the workers."""
