"""The MCP client side: connections to servers, and the requests that servers send back."""
