"""What servers offer besides tools: resources, prompts, and news of them."""
