"""One device: the model, its KV cache, and what a step needs of each request."""
