"""Settings of the program: typed values, read from flags, environment variables and one TOML file.

Every setting is a row of ``settings.json``: ``default_base`` is ``--default-base``, ``KNOWLEDGE_DEFAULT_BASE`` and the
key ``default_base``. Flags override variables, variables override the file. Keys and secrets have no flag, because all
users of a machine can read command lines; they are never logged.
"""

from __future__ import annotations

import argparse
import ipaddress
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Literal, cast
from urllib.parse import urlsplit

from mcp_servers.knowledge.types import MAX_RESULTS
from mcp_servers.program import version
from rkllm_base.addresses import is_loopback
from rkllm_base.folders import user_folder
from rkllm_base.settings import TOMLDecodeError, parse_toml, read_switch

TextForm = Literal["json", "passages"]
TenantDocuments = Literal["own", "shared"]


class SettingsError(ValueError):
    """An unusable setting; the message names it and the expected value."""


@dataclass(frozen=True)
class WatchedFolder:
    """A folder that is synchronised with a knowledge base."""

    folder: Path
    base: str  # id or name; created if no base has the name


@dataclass(frozen=True)
class TokenSettings:
    """Requirements for tokens; without secret and keys, requests need none."""

    secret: str = field(default="", repr=False)  # HS256
    jwks: Path | None = None  # file of RS256 public keys
    audience: str = ""  # empty: tokens that name an audience are refused
    issuer: str = ""  # empty: any issuer


@dataclass(frozen=True)
class HttpSettings:
    """Listening address and authentication."""

    host: str = "127.0.0.1"
    port: int = 8090  # 0 for any free port
    tokens: TokenSettings = field(default_factory=TokenSettings)


@dataclass(frozen=True)
class ModelSettings:
    """Models in the notation of ``service.embedder_from``; services are ``http://HOST/v1#MODEL``."""

    embedder: str = "none"
    embedder_key: str = field(default="", repr=False)
    embedder_timeout_s: int = 60  # of a request to its service
    embedder_batch: int = 16  # texts of a request
    previous_embedder: str = "none"  # searched while vectors of another embedder are made
    reranker: str = "none"
    reranker_key: str = field(default="", repr=False)
    llm: str = ""  # decides uncertain OCR if the host offers no sampling
    llm_key: str = field(default="", repr=False)
    sampling: bool = True  # use the host's model first
    strict: bool = False  # a model that does not answer is an error instead of a skipped stage


@dataclass(frozen=True)
class Settings:
    """Settings of the program."""

    folder: Path
    models: ModelSettings = field(default_factory=ModelSettings)
    watch: tuple[WatchedFolder, ...] = ()
    default_base: str = ""  # id, name or * for calls without one
    default_results: int = 10
    automatic_percent: int = 70  # least probability of a passage for an automatic search; bench/context_gate.py
    text: TextForm = "json"
    import_from: tuple[Path, ...] = ()  # folders that ``path`` may name; empty for all
    allow_networks: tuple[str, ...] = ()  # private networks that ``url`` may name, e.g. 192.168.0.0/16
    document_mb: int = 50  # largest file
    include_hidden: bool = False  # hidden sheets, rows, slides, layers and text are read
    tenant_chunks: int = 100_000  # chunks that a tenant may store; 0 for no limit
    tenant: str = ""  # over stdio, whose server this is; empty for the owner
    tenant_documents: TenantDocuments = "own"  # or also those of knowledge bases without a tenant
    tenant_role: Literal["read", "write"] = "read"  # write: also changes the tenant's own documents
    http: HttpSettings | None = None  # None for stdio
    log_level: str = "WARNING"
    database_url: str = field(default="", repr=False)  # PostgreSQL instead of the folder


PREFIX = "KNOWLEDGE_"
# RFC 7518, 3.2: at least as long as the hash.
_MIN_SECRET_BYTES = 32
# The parser has 2 GB of address space.
_MAX_DOCUMENT_MB = 500
_LIMITS = (
    ("", "default_results", MAX_RESULTS),
    ("", "automatic_percent", 100),
    ("", "document_mb", _MAX_DOCUMENT_MB),
    ("models", "embedder_timeout_s", 3600),
    ("models", "embedder_batch", 1000),
)


@dataclass(frozen=True)
class Option:
    """One setting."""

    name: str
    type: Literal["text", "number", "switch", "path", "list", "secret"]
    metavar: str  # placeholder in the help text
    help: str


OPTIONS: tuple[Option, ...] = tuple(
    Option(**row) for row in json.loads(Path(__file__).with_name("settings.json").read_text("utf-8"))
)
_BY_NAME = {option.name: option for option in OPTIONS}


def parse_flags(arguments: Sequence[str] | None = None) -> dict[str, Any]:
    """Parse the command line into setting -> value, None if absent; exits for ``--help``."""
    parser = argparse.ArgumentParser(
        prog="rkllm-mcp-knowledge",
        description="MCP server: finds passages in the owner's documents, in Japanese and English.",
        epilog=f"Every setting is also a variable, {PREFIX}FOLDER, and a key of the file; keys and secrets only those.",
        # An abbreviated --jwt-secret would be taken for --jwt-secret-file.
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=version())
    parser.add_argument("--config", metavar="FILE", help=f"settings as TOML; ${PREFIX}CONFIG")
    for option in OPTIONS:
        flag = f"--{option.name.replace('_', '-')}"
        if option.type == "switch":
            parser.add_argument(flag, action="store_true", default=None, help=option.help)
        elif option.type == "list":
            help_text = f"{option.help}; may be repeated"
            parser.add_argument(flag, action="append", metavar=option.metavar, help=help_text)
        elif option.type != "secret":
            parser.add_argument(flag, metavar=option.metavar, help=option.help)
    return vars(parser.parse_args(arguments))


def load_settings(flags: Mapping[str, Any], environ: Mapping[str, str]) -> Settings:
    """Combine file, environment and flags into Settings; raise SettingsError if one is unusable."""
    values: dict[str, Any] = {}
    if path := flags.get("config") or environ.get(f"{PREFIX}CONFIG", ""):
        file = Path(path).expanduser()
        try:
            table = parse_toml(file.read_bytes())
        except OSError as error:
            raise SettingsError(f"The settings {file} cannot be read ({error.strerror}): check the path.") from None
        except (TOMLDecodeError, UnicodeDecodeError) as error:
            raise SettingsError(f"The settings {file} are not TOML ({error}): correct the line.") from None
        unknown = [key for key in table if key not in _BY_NAME]
        if unknown:
            names = ", ".join(_BY_NAME)
            raise SettingsError(f"The settings {file} have an unknown key {unknown[0]!r}: known are {names}.")
        # Relative paths in the file start at its folder.
        folder = file.absolute().parent
        values = {key: _read_option(_BY_NAME[key], value, f"{key} in {file}", folder) for key, value in table.items()}
    for option in OPTIONS:
        variable = f"{PREFIX}{option.name.upper()}"
        if environ.get(variable):
            values[option.name] = _read_option(option, environ[variable], variable)
        flag = flags.get(option.name)
        if option.name == "database_url" and flag is not None and urlsplit(str(flag)).password:
            # All users of a machine can read command lines.
            raise SettingsError(f"--database-url has a password: give it in {variable}, or in ~/.pgpass.")
        if flag is not None:
            values[option.name] = _read_option(option, flag, f"--{option.name.replace('_', '-')}")
    return _settings(values, environ)


def _settings(values: Mapping[str, Any], environ: Mapping[str, str]) -> Settings:
    models = _present(ModelSettings, values)
    models["sampling"] = not values.get("no_sampling", False)
    # What 'rkllm-mcp knowledge model' chose: files of a model, or the setting of a package or a service.
    chosen = user_folder("data", environ) / "embedders" / "default"
    if not models.get("embedder") and chosen.is_dir():
        setting = chosen / "setting"
        models["embedder"] = setting.read_text("utf-8").strip() if setting.is_file() else f"cpu:{chosen.resolve()}"
    watched: list[WatchedFolder] = []
    for text in values.get("watch", ()):
        folder, equals, base = text.rpartition("=")
        if not equals or not folder or not base.strip():
            raise SettingsError(f"watch is {text!r}: give FOLDER=KB, the knowledge base by its id or name.")
        watched.append(WatchedFolder(Path(folder).expanduser(), base.strip()))
    sections: dict[str, Any] = {
        "folder": values.get("folder") or user_folder("data", environ) / "knowledge",
        "models": ModelSettings(**models),
        "watch": tuple(watched),
        "http": _http(values) if values.get("http") else None,
    }
    settings = Settings(**{**_present(Settings, values), **sections})
    if settings.text not in ("json", "passages"):
        raise SettingsError(f"text is {settings.text!r}: give json or passages.")
    for name, words in (("tenant_documents", ("own", "shared")), ("tenant_role", ("read", "write"))):
        if getattr(settings, name) not in words:
            raise SettingsError(f"{name} is {getattr(settings, name)!r}: give {' or '.join(words)}.")
    if settings.database_url and urlsplit(settings.database_url).scheme not in ("postgresql", "postgres"):
        raise SettingsError("database_url is no address of PostgreSQL: give postgresql://USER@HOST/NAME.")
    if settings.tenant and settings.http:
        raise SettingsError("tenant is for stdio: with http the token of a request names the tenant.")
    for section, name, most in _LIMITS:
        value = getattr(settings.models if section == "models" else settings, name)
        if not 1 <= value <= most:
            raise SettingsError(f"{name} is {value}: give a number from 1 to {most}.")
    try:
        [ipaddress.ip_network(network) for network in settings.allow_networks]
    except ValueError as error:
        raise SettingsError(f"allow_networks: {error}: give networks like 192.168.0.0/16.") from None
    if settings.log_level.upper() not in {"DEBUG", "INFO", "WARNING", "ERROR"}:
        raise SettingsError(f"log_level is {settings.log_level!r}: give DEBUG, INFO, WARNING or ERROR.")
    return settings


def _present(section: type[Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values that are fields of a section."""
    return {
        option_field.name: values[option_field.name] for option_field in fields(section) if option_field.name in values
    }


def _http(values: Mapping[str, Any]) -> HttpSettings:
    secret: str = values.get("jwt_secret", "")
    file: Path | None = values.get("jwt_secret_file")
    if file is not None:
        try:
            secret = file.read_text("utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            reason = f"cannot be read ({getattr(error, 'strerror', None) or 'it is not text'})"
            raise SettingsError(f"jwt_secret_file {file} {reason}: give a file with a secret.") from None
    if (secret or file) and len(secret.encode()) < _MIN_SECRET_BYTES:
        raise SettingsError(f"The JWT secret is too short: give at least {_MIN_SECRET_BYTES} bytes, as HS256 requires.")
    tokens = TokenSettings(secret, values.get("jwks"), values.get("jwt_audience", ""), values.get("jwt_issuer", ""))
    http = HttpSettings(**_present(HttpSettings, values), tokens=tokens)
    if not is_loopback(http.host) and not (secret or tokens.jwks):
        raise SettingsError(
            f"Off loopback ({http.host}) anyone could read all documents: give jwt_secret_file or jwks, or listen on"
            " 127.0.0.1."
        )
    return http


def _read_option(option: Option, value: Any, where: str, folder: Path | None = None) -> Any:
    if option.type == "list":
        items = cast("Sequence[Any]", value) if isinstance(value, list) else str(value).split(",")
        texts = [str(item).strip() for item in items if str(item).strip()]
        if option.name == "import_from":
            return tuple(_path(text, folder) for text in texts)
        return tuple(str(_path(text, folder)) for text in texts) if option.name == "watch" else tuple(texts)
    if option.type == "switch":
        is_on = value if isinstance(value, bool) else read_switch(str(value))
        if is_on is None:
            raise SettingsError(f"{where} is {value!r}: give true or false.")
        return is_on
    if option.type == "number":
        is_number = isinstance(value, int) and not isinstance(value, bool)
        if not is_number and not (isinstance(value, str) and value.strip().isdecimal()):
            raise SettingsError(f"{where} is {value!r}: give a whole number.")
        return int(value)
    if not isinstance(value, str):
        raise SettingsError(f"{where} is not a string: give {option.help}.")
    return _path(value, folder) if option.type == "path" else value.strip()


def _path(text: str, folder: Path | None) -> Path:
    path = Path(text).expanduser()
    return path if folder is None else folder / path
