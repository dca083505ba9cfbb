"""HTTP in front of the engine: the pod's OpenAI-compatible api."""
