"""The keys of servers behind an address, and when servers run: what is taken, refused, and told the tools layer."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from rkllm_mcp.config.loading import load_config
from rkllm_mcp.config.servers import RemoteServer, ServerConfig
from rkllm_mcp.diagnostics.doctor import diagnose
from rkllm_mcp.errors import ConfigError


def written(folder: Path, text: str) -> Path:
    path = folder / "config.toml"
    path.write_text(f'[[servers]]\nname = "s"\n{text}', encoding="utf-8")
    return path


def spec_of(folder: Path, text: str) -> ServerConfig:
    (spec,) = load_config(written(folder, text), env={}).resolved_servers()
    return spec


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ('url = "ws://h/mcp"\ntransport = "websocket"\nauth = "oauth"', "websocket has no OAuth; put a key into"),
        ('url = "http://h/mcp"\nauth = "client_credentials"', "it needs client_id, client_secret and their issuer"),
        ('url = "http://h/mcp"\nauth = "basic"', "auth: found a string; allowed are 'none', 'oauth'"),
        ('url = "http://h/mcp"\nping_s = -1', "ping_s: found -1"),
        ('url = "http://h/mcp"\nidle_stop_s = 0', "idle_stop_s: found 0"),
    ],
)
def test_a_login_or_a_time_that_cannot_be_is_refused(tmp_path: Path, keys: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load_config(written(tmp_path, keys), env={})
    assert message in str(caught.value)


def test_placeholders_wait_for_tokens_and_the_rest_is_sent_as_it_is(tmp_path: Path) -> None:
    headers = 'headers_template = { Authorization = "Bearer ${servicenow}", X-Key = "sesame" }'
    spec = spec_of(tmp_path, f'url = "http://h/mcp"\n{headers}\nca_file = "own.pem"')
    assert isinstance(spec, RemoteServer)
    assert spec.headers_template == {"Authorization": "Bearer ${servicenow}", "X-Key": "sesame"}
    assert spec.ca_file == tmp_path / "own.pem"
    assert spec.auth == "none"
    assert "sesame" not in repr(spec)


def test_a_login_reaches_the_tools_layer_and_its_secret_is_not_shown(tmp_path: Path) -> None:
    keys = 'client_id = "me"\nclient_secret = "hush"\nissuer = "https://i"\nscopes = ["read"]'
    person = spec_of(
        tmp_path, f'url = "http://h/mcp"\nauth = "oauth"\nredirect_uri = "http://127.0.0.1:8765/x"\n{keys}'
    )
    assert isinstance(person, RemoteServer)
    assert (person.client_id, person.client_secret, person.issuer) == ("me", "hush", "https://i")
    assert (person.auth, person.scopes, person.redirect_uri) == ("oauth", ("read",), "http://127.0.0.1:8765/x")
    program = spec_of(tmp_path, f'url = "http://h/mcp"\nauth = "client_credentials"\n{keys}')
    assert isinstance(program, RemoteServer)
    assert (program.client_id, program.client_secret, program.issuer) == ("me", "hush", "https://i")
    assert (program.auth, program.scopes) == ("client_credentials", ("read",))
    assert "hush" not in repr(program)
    assert "hush" not in str(load_config(tmp_path / "config.toml", env={}).dump_redacted())


def test_when_a_server_runs_reaches_the_tools_layer(tmp_path: Path) -> None:
    plain = spec_of(tmp_path, 'command = "x"')
    assert (plain.lazy, plain.idle_stop_s, plain.ping_s) == (False, None, 60.0)
    spec = spec_of(tmp_path, 'command = "x"\nlazy = true\nidle_stop_s = 300\nping_s = 0')
    assert (spec.lazy, spec.idle_stop_s, spec.ping_s) == (True, 300.0, 0.0)


def test_the_doctor_misses_a_certificate_that_is_not_there(tmp_path: Path) -> None:
    path = written(tmp_path, 'url = "https://h/mcp"\nca_file = "gone.pem"')
    findings = [finding for finding in diagnose(load_config(path, env={})) if "gone.pem" in finding.found]
    assert [finding.status for finding in findings] == ["warn"]


@pytest.mark.parametrize(
    ("headers", "problem"),
    [
        ('"X-Key" = "a\\r\\nX-Other: b"', "found a line break or another control character in the header X-Key"),
        ('"X-Key" = "a\\u0000"', "found a line break or another control character in the header X-Key"),
        ('"X Key" = "a"', "found the header name 'X Key'; letters, digits and hyphens are allowed"),
        ('"X-Key:" = "a"', "found the header name 'X-Key:'"),
        ('"" = "a"', "found the header name ''"),
        ('Host = "other"', "found the header Host; the connection sends it itself; leave it out"),
        ('transfer-encoding = "chunked"', "found the header transfer-encoding"),
        ('Content-Length = "3"', "found the header Content-Length"),
        ('Connection = "close"', "found the header Connection"),
        ('Upgrade = "websocket"', "found the header Upgrade"),
    ],
)
@pytest.mark.parametrize("place", ['url = "https://h/mcp"', 'openapi_spec = "https://h/spec.json"'])
def test_a_header_that_would_break_a_request_is_refused(tmp_path: Path, place: str, headers: str, problem: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(problem)):
        spec_of(tmp_path, f"{place}\nheaders_template = {{ {headers} }}")


@pytest.mark.parametrize(
    "url", ["https://h/mcp\\r\\nHost: other", "https://h/a b", "https://h/\\tx", "https://h/mcp\\n"]
)
def test_an_address_with_a_line_break_is_refused(tmp_path: Path, url: str) -> None:
    with pytest.raises(ConfigError, match="an address without spaces and line breaks is allowed"):
        spec_of(tmp_path, f'url = "{url}"')
