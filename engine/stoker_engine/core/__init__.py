"""The engine side of the socket: scheduler, KV cache bookkeeping, the step loop and its process."""
