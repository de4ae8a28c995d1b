"""TLS settings with additional CA certificates."""

from __future__ import annotations

import ssl

from rkllm_mcp.errors import ServerUnavailableError


def tls_context(ca_file: str | None) -> ssl.SSLContext:
    """Return a context that trusts the system's CA certificates and those in ``ca_file``.

    Raises:
        ServerUnavailableError: the file cannot be read, or contains no certificate.
    """
    context = ssl.create_default_context()
    if ca_file is not None:
        try:
            context.load_verify_locations(cafile=ca_file)
        except OSError as error:
            message = f"ca_file {ca_file} cannot be used: {error}; name a file in PEM format"
            raise ServerUnavailableError(message) from None
    return context
