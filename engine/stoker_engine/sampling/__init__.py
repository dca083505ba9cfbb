"""From logits to tokens: the order of sampling operations, each in a file of its own."""
