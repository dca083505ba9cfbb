"""hf:// models: from a Hugging Face hub into a cache directory. Imports no torch."""
