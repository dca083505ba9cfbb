"""The OpenAPI document of the api, made of the structs that it decodes and encodes."""
