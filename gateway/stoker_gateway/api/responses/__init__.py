"""The Responses API: creating responses, streamed, whole or in the background, and what is kept of them."""
