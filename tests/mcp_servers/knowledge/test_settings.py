from __future__ import annotations

from pathlib import Path

import pytest

from mcp_servers.knowledge.settings import (
    HttpSettings,
    ModelSettings,
    Settings,
    SettingsError,
    TokenSettings,
    WatchedFolder,
    load_settings,
    parse_flags,
)

SECRET = "a secret of more than thirty-two bytes"
HOME = {"HOME": "/home/me"}


def read(*words: str, **environ: str) -> Settings:
    return load_settings(parse_flags(words), HOME | environ)


def test_without_settings_everything_is_at_home_and_no_model_is_asked() -> None:
    assert read() == Settings(Path("/home/me/.local/share/rkllm-mcp/knowledge"))
    assert read(XDG_DATA_HOME="/data").folder == Path("/data/rkllm-mcp/knowledge")
    assert read(XDG_DATA_HOME="relative").folder == Path("/home/me/.local/share/rkllm-mcp/knowledge")


def test_a_flag_counts_more_than_a_variable_and_a_variable_more_than_the_file(tmp_path: Path) -> None:
    file = tmp_path / "kb.toml"
    file.write_text(
        'folder = "kept"\nembedder = "cpu"\nembedder_key = "k"\ndefault_base = "file"\nwatch = ["docs=規程"]\n'
        'strict = true\nno_sampling = true\nimport_from = ["in", "/abs"]\nllm = "http://h/v1#m"\n',
        "utf-8",
    )
    settings = read(
        "--default-base", "flag", "--watch", "/w=b=KB", KNOWLEDGE_CONFIG=str(file), KNOWLEDGE_EMBEDDER="hashing"
    )
    assert settings == Settings(
        folder=tmp_path / "kept",
        models=ModelSettings("hashing", "k", llm="http://h/v1#m", sampling=False, strict=True),
        watch=(WatchedFolder(Path("/w=b"), "KB"),),
        default_base="flag",
        import_from=(tmp_path / "in", Path("/abs")),
    )
    assert read("--config", str(file)).watch == (WatchedFolder(tmp_path / "docs", "規程"),)


def test_http_needs_tokens_off_loopback_alone(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text(f"{SECRET}\n", "utf-8")
    assert read("--http", "--port", "0").http == HttpSettings(port=0)
    assert read("--http", "--host", "::1").http == HttpSettings("::1")
    everywhere = read("--http", "--host", "0.0.0.0", "--jwt-secret-file", str(secret), "--jwt-audience", "kb")
    assert everywhere.http == HttpSettings("0.0.0.0", 8090, TokenSettings(SECRET, audience="kb"))
    assert read("--http", KNOWLEDGE_JWT_SECRET=SECRET).http == HttpSettings(tokens=TokenSettings(SECRET))


@pytest.mark.parametrize(
    ("words", "environ", "sentence"),
    [
        (["--http", "--host", "0.0.0.0"], {}, "Off loopback (0.0.0.0) anyone could read all documents: "),
        (["--http", "--host", ""], {}, "Off loopback () anyone could read all documents: "),
        (["--http"], {"KNOWLEDGE_JWT_SECRET": "short"}, "The JWT secret is too short: give at least 32 bytes"),
        (["--http", "--jwt-secret-file", "/none"], {}, "jwt_secret_file /none cannot be read (No such file"),
        (["--watch", "folder"], {}, "watch is 'folder': give FOLDER=KB"),
        (["--text", "yaml"], {}, "text is 'yaml': give json or passages."),
        (["--default-results", "51"], {}, "default_results is 51: give a number from 1 to 50."),
        (["--default-results", "many"], {}, "--default-results is 'many': give a whole number."),
        (["--allow-networks", "home"], {}, "allow_networks: 'home' does not appear to be"),
        (["--log-level", "LOUD"], {}, "log_level is 'LOUD': give DEBUG"),
        ([], {"KNOWLEDGE_STRICT": "perhaps"}, "KNOWLEDGE_STRICT is 'perhaps': give true or false."),
        (["--database-url", "postgresql://a:secret@db/kb"], {}, "--database-url has a password: give it in KNOW"),
        ([], {"KNOWLEDGE_DATABASE_URL": "mysql://db/kb"}, "database_url is no address of PostgreSQL: give postgresql:"),
        (["--config", "/none.toml"], {}, "The settings /none.toml cannot be read (No such file"),
    ],
)
def test_a_setting_that_cannot_be_used_says_what_to_give(
    words: list[str], environ: dict[str, str], sentence: str
) -> None:
    with pytest.raises(SettingsError) as refused:
        read(*words, **environ)
    assert str(refused.value).startswith(sentence)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("folders = 1", "unknown key 'folders'"),
        ("folder = 1", "folder in .* is not a string"),
        ("folder", "are not TOML"),
    ],
)
def test_a_file_that_cannot_be_used_says_where(tmp_path: Path, content: str, words: str) -> None:
    file = tmp_path / "kb.toml"
    file.write_text(content, "utf-8")
    with pytest.raises(SettingsError, match=words):
        read("--config", str(file))


def test_secrets_have_no_flag_and_are_never_shown() -> None:
    with pytest.raises(SystemExit):
        read("--jwt-secret", SECRET)
    settings = read(
        "--http",
        KNOWLEDGE_JWT_SECRET=SECRET,
        KNOWLEDGE_EMBEDDER_KEY="key of one",
        KNOWLEDGE_RERANKER_KEY="key of two",
        KNOWLEDGE_LLM_KEY="key of three",
        KNOWLEDGE_DATABASE_URL="postgresql://kb:key of four@db/kb",
    )
    assert settings.models.llm_key == "key of three"
    assert SECRET not in repr(settings)
    assert "key of" not in repr(settings)
