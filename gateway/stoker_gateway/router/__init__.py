"""The gateway, one address for all models: which endpoints there are, which of them gets a request, and the bytes between."""
