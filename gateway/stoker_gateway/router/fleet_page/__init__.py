"""The fleet page: models, replicas and what has happened to them, live in a browser."""
