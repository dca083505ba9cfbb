"""InferenceDeployments: their structs, their CustomResourceDefinition, and the `stoker` command."""
