"""The OpenAI API's types and their encoding, used by the api and by the gateway."""
