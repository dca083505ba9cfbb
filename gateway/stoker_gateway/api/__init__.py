"""The pod's HTTP container: the OpenAI API in front of one engine."""
