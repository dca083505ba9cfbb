"""The types of Anthropic's Messages API, and its errors."""
