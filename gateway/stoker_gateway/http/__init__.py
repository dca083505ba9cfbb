"""HTTP as both programs serve it: the listener, the protocol and its limits, draining, and clients that leave."""
