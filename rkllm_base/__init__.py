"""What the host and the servers share; it imports neither, and knows no protocol between them."""
