"""TLS of the transports that connect to a remote server."""

from __future__ import annotations

import ssl
from pathlib import Path

from rkllm_mcp.errors import ServerUnavailableError


def tls_context(ca_file: Path | None) -> ssl.SSLContext:
    """Return a context with the system's CAs and those in ``ca_file``; a ServerUnavailableError if that is unusable."""
    context = ssl.create_default_context()
    if ca_file is not None:
        try:
            context.load_verify_locations(cafile=ca_file)
        except OSError as error:
            message = f"ca_file {ca_file} cannot be used: {error}; name a file in PEM format"
            raise ServerUnavailableError(message) from None
    return context
