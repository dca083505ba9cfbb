"""The engine: scheduler, paged KV cache, executor and the sockets an api talks to. Importing this package costs nothing."""
