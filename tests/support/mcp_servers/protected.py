"""An MCP server that wants a login, with its authorization server made of three answers."""

from __future__ import annotations

import base64
import hashlib
from typing import Any
from urllib.parse import urlencode

from tests.support.mcp_servers.web import Mcp, Reply, Request, echoed


class Protected(Mcp):
    """An MCP server and its authorization server in one; ``valid`` is the access token it takes."""

    def __init__(self) -> None:
        super().__init__({"echo": echoed})
        self.url = ""
        self.valid = "access-0"
        self.issued = 0
        self.registrations: list[dict[str, Any]] = []
        self.grants: list[dict[str, str]] = []
        self.basic: list[str] = []
        self.challenges: dict[str, str] = {}
        self.expires_in = 3600
        self.denies = False
        self.registers = True
        # After the address: in the metadata, and in the answer to a login, which states no issuer if it is None.
        self.issuer_end = ""
        self.iss_end: str | None = None
        self.meanwhile = self.answer

    def answer(self, request: Request) -> Reply | None:
        if request.path.startswith("/.well-known/oauth-protected-resource"):
            return Reply(200, {"resource": f"{self.url}/mcp", "authorization_servers": [self.url]})
        if request.path.startswith("/.well-known/oauth-authorization-server"):
            return Reply(200, self.metadata())
        if request.path == "/register" and not self.registers:
            return Reply(404, b"404: Not Found")
        if request.path == "/register":
            self.registrations.append(request.json)
            return Reply(201, {**request.json, "client_id": f"client-{len(self.registrations)}"})
        if request.path == "/authorize":
            return self.authorize(request.query)
        if request.path == "/token":
            return self.token(request)
        if request.headers.get("authorization") != f"Bearer {self.valid}":
            return Reply(401, b"", {"WWW-Authenticate": "Bearer"})
        return None

    def metadata(self) -> dict[str, Any]:
        return {
            "issuer": f"{self.url}{self.issuer_end}",
            "authorization_endpoint": f"{self.url}/authorize",
            "token_endpoint": f"{self.url}/token",
            **({"registration_endpoint": f"{self.url}/register"} if self.registers else {}),
            "response_types_supported": ["code"],
            "code_challenge_methods_supported": ["S256"],
        }

    def authorize(self, query: dict[str, str]) -> Reply:
        code = f"code-{len(self.challenges)}"
        self.challenges[code] = query["code_challenge"]
        back = {"error": "access_denied", "error_description": "not today"} if self.denies else {"code": code}
        if self.iss_end is not None:
            back["iss"] = f"{self.url}{self.iss_end}"
        return Reply(302, b"", {"Location": f"{query['redirect_uri']}?{urlencode({**back, 'state': query['state']})}"})

    def token(self, request: Request) -> Reply:
        self.grants.append(request.form)
        self.basic.append(request.headers.get("authorization", ""))
        if request.form["grant_type"] == "authorization_code":
            digest = hashlib.sha256(request.form["code_verifier"].encode()).digest()
            assert base64.urlsafe_b64encode(digest).decode().rstrip("=") == self.challenges[request.form["code"]]
        self.issued += 1
        self.valid = f"access-{self.issued}"
        return Reply(
            200,
            {
                "access_token": self.valid,
                "token_type": "Bearer",
                "expires_in": self.expires_in if self.issued == 1 else 3600,
                "refresh_token": f"refresh-{self.issued}",
            },
        )
