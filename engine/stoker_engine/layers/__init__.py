"""Layers of decoder models, as functions over plain tensors."""
