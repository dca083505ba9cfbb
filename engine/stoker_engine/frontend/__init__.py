"""The api side of the socket: text in and out, and the clients of an engine."""
