"""What the cluster holds of an InferenceDeployment → its status, its Events, and when to look again. Pure: no clock, no network."""
