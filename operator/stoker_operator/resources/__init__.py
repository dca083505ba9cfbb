"""Manifests of an InferenceDeployment's children: pure functions of the spec and of what the operator has observed."""
