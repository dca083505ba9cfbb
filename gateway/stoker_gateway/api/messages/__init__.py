"""The Messages API of Anthropic, answered as chats."""
