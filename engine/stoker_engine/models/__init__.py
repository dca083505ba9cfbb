"""Model architectures, and their weights read from Hugging Face directories and GGUF files."""
