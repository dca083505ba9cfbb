"""The cluster as the gateway sees it: InferenceDeployments and EndpointSlices, and the condition that it writes back."""
