"""Pictures to embeddings: reading and fitting a picture, and the vision encoder in its own process."""
