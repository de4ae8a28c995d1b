"""Keys of the service: made, hashed, compared, written into a configuration and found missing there."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rkllm_mcp.app.settings import unset_rights
from rkllm_mcp.config.editing import add_key, add_tenant
from rkllm_mcp.config.loading import load_config
from rkllm_mcp.config.secrets import (
    PREFIX,
    REDACTED,
    hash_key,
    is_hashed,
    matches,
    new_key,
    plain_keys,
    redacted_text,
)
from rkllm_mcp.config.sections import ServiceSection
from rkllm_mcp.errors import ConfigError

ENTRY = hash_key("sk-rkllm-old")
NEW = hash_key("sk-rkllm-new")


def test_a_key_is_like_no_other_and_is_hidden_wherever_text_is_shown() -> None:
    keys = {new_key() for _ in range(100)}
    assert len(keys) == 100
    for key in keys:
        assert key.startswith(PREFIX)
        assert len(key) == len(PREFIX) + 43
        assert redacted_text(f"sent {key}") == f"sent {REDACTED}"


def test_a_hash_is_salted_and_matches_its_key_alone() -> None:
    key = new_key()
    assert hash_key(key) != hash_key(key)
    assert is_hashed(hash_key(key))
    for entry in (hash_key(key), key):
        assert matches(key, entry)
        for other in ("", key[:-1], f"{key}x", hash_key(key), entry.upper(), "日本", "\udc80"):
            assert not matches(other, entry)
    # The hash itself is no key.
    assert not matches(ENTRY, ENTRY)


@pytest.mark.parametrize(
    ("entry", "problem"),
    [
        ("hunter2", ""),
        (ENTRY, ""),
        ("", "an empty key"),
        ("  ", "an empty key"),
        ("sha256:", "a hash that is not whole"),
        (ENTRY[:-1], "a hash that is not whole"),
        (ENTRY.upper().replace("SHA", "sha"), "a hash that is not whole"),
    ],
)
def test_an_entry_that_is_neither_a_key_nor_a_hash_is_refused(entry: str, problem: str, tmp_path: Path) -> None:
    path = tmp_path / "c.toml"
    for text in (f'[service]\napi_keys = ["{entry}"]', f'[[tenants]]\nname = "t"\napi_key = "{entry}"\n'):
        path.write_text(text, "utf-8")
        if problem:
            # The key of a tenant has a least length, too.
            found = problem if entry or "service" in text else "a string"
            with pytest.raises(ConfigError, match=rf"api_keys?(\[0\])?: found {found}"):
                load_config(path)
        else:
            load_config(path)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ('[service]\nhost = "0.0.0.0"\n', "off loopback a key is required"),
        ('[service]\nhost = "0.0.0.0"\napi_keys = ["fifteen letters"]\n', "every key needs at least 16 characters"),
        (
            f'[service]\nhost = "::"\napi_keys = ["{ENTRY}"]\n[[tenants]]\nname = "t"\napi_key = "k"\n',
            "every key needs at least 16 characters",
        ),
        ('[service]\nhost = "127.evil.example"\n', "off loopback a key is required"),
        ('[service]\ncors = ["*"]\n', "any page in any browser here could use the board"),
        ('[service]\napi_keys = ["k"]\n[[tenants]]\nname = "t"\napi_key = "k"\n', "give each tenant a separate key"),
    ],
)
def test_a_configuration_that_would_open_the_service_to_all_is_refused(
    text: str, sentence: str, tmp_path: Path
) -> None:
    path = tmp_path / "c.toml"
    path.write_text(text, "utf-8")
    with pytest.raises(ConfigError, match=sentence):
        load_config(path)


def test_the_key_of_a_tenant_is_one_that_lets_other_machines_in(tmp_path: Path) -> None:
    path = tmp_path / "c.toml"
    key = new_key()
    path.write_text(f'[service]\nhost = "0.0.0.0"\ncors = ["*"]\n[[tenants]]\nname = "t"\napi_key = "{key}"\n', "utf-8")
    assert load_config(path).service.host == "0.0.0.0"


FILES = [
    ("", f'[service]\napi_keys = [\n    "{NEW}",  # laptop\n]\n'),
    ("# mine\n[model]\n", f'# mine\n[model]\n\n[service]\napi_keys = [\n    "{NEW}",  # laptop\n]\n'),
    (
        "[service]  # here\nport = 1 # one\n[model]\n",
        f'[service]  # here\napi_keys = [\n    "{NEW}",  # laptop\n]\nport = 1 # one\n[model]\n',
    ),
    ("[service]", f'[service]\napi_keys = [\n    "{NEW}",  # laptop\n]\n'),
    (
        '[service]\napi_keys = ["old"] # the old one\n',
        f'[service]\napi_keys = [\n    "{NEW}",  # laptop\n    "old"] # the old one\n',
    ),
    ("[service]\napi_keys = []\n", f'[service]\napi_keys = [\n    "{NEW}",  # laptop\n]\n'),
    (
        '[service]\napi_keys = [\n  # first\n  "old",\n]\n',
        f'[service]\napi_keys = [\n    "{NEW}",  # laptop\n  # first\n  "old",\n]\n',
    ),
]


@pytest.mark.parametrize(("before", "after"), FILES)
def test_a_key_goes_into_the_file_and_the_rest_stays_as_it_was_written(before: str, after: str, tmp_path: Path) -> None:
    path = tmp_path / "c.toml"
    if before:
        path.write_text(before, "utf-8")
    add_key(path, NEW, " laptop\n")
    assert path.read_text("utf-8") == after
    assert load_config(path).service.api_keys[0] == NEW


def test_a_tenant_is_made_with_a_key_and_later_gets_another(tmp_path: Path) -> None:
    path = tmp_path / "c.toml"
    path.write_text('[[tenants]]\nname = "attic"\napi_key = "plain" # theirs\n', "utf-8")
    add_tenant(path, "kitchen", ENTRY, "tablet")
    add_tenant(path, "attic", NEW)
    assert path.read_text("utf-8") == (
        f'[[tenants]]\nname = "attic"\napi_key = "{NEW}" # theirs\n\n'
        f'[[tenants]]\nname = "kitchen"\napi_key = "{ENTRY}"  # tablet\nmay_approve = false\ndocuments = "own"\n'
    )


def test_a_json_file_is_edited_as_well(tmp_path: Path) -> None:
    path = tmp_path / "c.json"
    path.write_text('{"service": {"port": 1, "api_keys": ["old"]}, "mcpServers": {}}', "utf-8")
    add_key(path, NEW)
    add_tenant(path, "t", ENTRY)
    add_tenant(path, "t", hash_key("other"))
    after: dict[str, Any] = json.loads(path.read_text("utf-8"))
    assert after["service"] == {"port": 1, "api_keys": [NEW, "old"]}
    assert [tenant["name"] for tenant in after["tenants"]] == ["t"]
    assert matches("other", after["tenants"][0]["api_key"])


@pytest.mark.parametrize("text", ['service.api_keys = ["a"]\n', 'service = {api_keys = ["a"]}\n', "[ 'service' ]\n"])
def test_a_file_in_a_form_that_is_not_edited_here_stays_as_it_is(text: str, tmp_path: Path) -> None:
    path = tmp_path / "c.toml"
    path.write_text(text, "utf-8")
    with pytest.raises(ConfigError):
        add_key(path, NEW)
    assert path.read_text("utf-8") == text
    assert list(tmp_path.iterdir()) == [path]


def test_keys_that_are_in_the_file_as_they_are_are_named() -> None:
    file: dict[str, Any] = {
        "service": {"api_keys": [ENTRY, "plain", "${BOARD_KEY}"], "keys": [{"key": "plain"}, {"key": ENTRY}]},
        "tenants": [{"name": "t", "api_key": "plain"}, {"name": "u", "api_key": ENTRY}],
    }
    assert plain_keys(file) == ["service.api_keys[1]", "service.keys[0].key", "tenants[0].api_key"]
    assert plain_keys({}) == []


def test_keys_for_purposes_let_other_machines_in_and_a_tenant_without_may_approve_is_named(tmp_path: Path) -> None:
    path = tmp_path / "c.toml"
    tenants = "".join(
        f'[[tenants]]\nname = "{name}"\napi_key = "{name}"\n{line}'
        for name, line in (("old", ""), ("no", "may_approve = false\n"), ("yes", "may_approve = true\n"))
    )
    keys = '[[service.keys]]\nkey = "k"\nallow = ["chat"]\n[[service.keys]]\nkey = "l"\n'
    path.write_text(f'[service]\napi_keys = ["a"]\n{keys}{tenants}', "utf-8")
    config = load_config(path)
    every = ("chat", "tools", "approve", "write")
    assert config.service.owner_keys() == [("a", every), ("k", ("chat",)), ("l", every)]
    (warning,) = unset_rights(config)
    assert warning.startswith(
        "tenant 'old' may approve its own calls, because may_approve is not set; the next release"
    )
    assert config.for_tenant(None).service.owner_keys() == []
    path.write_text('[[service.keys]]\nkey = "sha256:xx"\nallow = ["chat", "sing"]\n', "utf-8")
    with pytest.raises(ConfigError, match=r"service.keys\[0\]"):
        load_config(path)


def test_a_proxy_is_trusted_by_its_address_or_its_network(tmp_path: Path) -> None:
    section = ServiceSection(trusted_proxies=("10.0.0.2", "10.1.2.3/16", "fd00::/8"))
    trusted = ["10.0.0.2", "::ffff:10.0.0.2", "10.1.255.1", "fd12::1"]
    others = ["10.0.0.3", "10.2.0.1", "fe80::1", "", "proxy"]
    assert [section.is_trusted_proxy(address) for address in (*trusted, *others)] == [True] * 4 + [False] * 5
    path = tmp_path / "c.toml"
    path.write_text('[service]\ntrusted_proxies = ["10.0.0.2", "proxy.lan"]\n', "utf-8")
    with pytest.raises(ConfigError, match=r"trusted_proxies\[1\].* no address and no network"):
        load_config(path)
