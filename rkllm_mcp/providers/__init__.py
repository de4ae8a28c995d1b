"""Chat models: the local one, OpenAI's and Anthropic's APIs, and a fallback."""
