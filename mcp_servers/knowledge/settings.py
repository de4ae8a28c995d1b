"""What the program does, as checked values: nothing here is read from anywhere, and nothing secret is ever shown."""

from __future__ import annotations

import argparse
import ipaddress
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from importlib import metadata
from pathlib import Path
from typing import Any, Literal, cast

from mcp_servers.knowledge.types import MAX_RESULTS

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

TextForm = Literal["json", "passages"]


class SettingsError(ValueError):
    """A setting that cannot be used; the sentence names it and what to give."""


@dataclass(frozen=True)
class WatchedFolder:
    """A folder that is kept in agreement with a knowledge base.

    Args:
        folder: watched with everything below.
        base: the knowledge base's id or name; one of that name is made when there is none.
    """

    folder: Path
    base: str


@dataclass(frozen=True)
class TokenSettings:
    """What a token has to be signed with, and say.

    Args:
        secret: for HS256; empty for none.
        jwks: a file of public keys for RS256; None for none.
        audience: who a token has to be meant for; a token that names one is refused when empty.
        issuer: who it has to come from; anybody when empty.
    """

    secret: str = field(default="", repr=False)
    jwks: Path | None = None
    audience: str = ""
    issuer: str = ""

    @property
    def is_configured(self) -> bool:
        """Whether tokens are wanted at all."""
        return bool(self.secret or self.jwks)


@dataclass(frozen=True)
class HttpSettings:
    """Where to listen.

    Args:
        host: an address of this machine.
        port: 0 for any that is free.
        tokens: who is let in.
    """

    host: str = "127.0.0.1"
    port: int = 8090
    tokens: TokenSettings = field(default_factory=TokenSettings)


@dataclass(frozen=True)
class ModelSettings:
    """The models at hand, in the forms of ``embedding.choice``; addresses are ``http://HOST/v1#MODEL``.

    Args:
        embedder: makes vectors.
        embedder_key: sent to its service.
        previous_embedder: searched while another one's vectors are made.
        reranker: the cross-encoder.
        reranker_key: sent to its service.
        llm: judges what the rules of ``normalize_ocr_text`` are unsure of, where the host has no model for it.
        llm_key: sent to its service.
        sampling: ask the host's model first, where there is one.
        strict: a model that does not answer is an error instead of a stage that is left out.
    """

    embedder: str = "none"
    embedder_key: str = field(default="", repr=False)
    previous_embedder: str = "none"
    reranker: str = "none"
    reranker_key: str = field(default="", repr=False)
    llm: str = ""
    llm_key: str = field(default="", repr=False)
    sampling: bool = True
    strict: bool = False


@dataclass(frozen=True)
class Settings:
    """What the program does.

    Args:
        folder: where everything is kept.
        models: the models at hand.
        watch: folders that are kept in agreement with a knowledge base.
        default_base: the knowledge base, by id or name, of a call that names none.
        default_results: how many results a search gives that does not say.
        text: how search results are written for who reads text: as JSON, or as passages with their sources.
        import_from: the only folders files are added from; empty for every one, which nobody with a token gets.
        allow_networks: private networks that web pages may be added from, e.g. 192.168.0.0/16.
        http: where to listen; None for standard input and output.
        log_level: of what goes to standard error.
    """

    folder: Path
    models: ModelSettings = field(default_factory=ModelSettings)
    watch: tuple[WatchedFolder, ...] = ()
    default_base: str = ""
    default_results: int = 10
    text: TextForm = "json"
    import_from: tuple[Path, ...] = ()
    allow_networks: tuple[str, ...] = ()
    http: HttpSettings | None = None
    log_level: str = "WARNING"


def version() -> str:
    """The version of the distribution this program came with; 0 when it runs from a bare folder."""
    try:
        return metadata.version("rkllm-mcp")
    except metadata.PackageNotFoundError:
        return "0"


def is_loopback(host: str) -> bool:
    """Whether only programs of this machine reach an address; a name that merely looks like one is none."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host.lower() == "localhost"


PREFIX = "KNOWLEDGE_"
# RFC 7518, 3.2: a key of at least the size of the hash.
_MIN_SECRET_BYTES = 32


@dataclass(frozen=True)
class Option:
    """One row.

    Args:
        name: the TOML key.
        kind: how its text is read.
        shown: what stands for its value in a help text.
        purpose: for people.
    """

    name: str
    type: Literal["text", "number", "switch", "path", "list", "secret"]
    metavar: str
    help: str


OPTIONS: tuple[Option, ...] = (
    Option("folder", "path", "FOLDER", "where everything is kept; ~/.local/share/rkllm-mcp/knowledge"),
    Option("embedder", "text", "NAME|URL#MODEL", "none, hashing, cpu:FOLDER or http://HOST/v1#MODEL"),
    Option("embedder_key", "secret", "", "the key of its service"),
    Option("previous_embedder", "text", "NAME|URL#MODEL", "searched until the new embedder's vectors are made"),
    Option("reranker", "text", "NAME|URL#MODEL", "the cross-encoder, cpu:FOLDER or http://HOST/v1#MODEL"),
    Option("reranker_key", "secret", "", "the key of its service"),
    Option("llm", "text", "URL#MODEL", "a language model for doubtful OCR, http://HOST/v1#MODEL"),
    Option("llm_key", "secret", "", "the key of its service"),
    Option("no_sampling", "switch", "", "never ask the host's model about doubtful OCR"),
    Option("strict", "switch", "", "a model that does not answer is an error, not a stage left out"),
    Option("watch", "list", "FOLDER=KB", "keep a knowledge base (id or name) in agreement with a folder"),
    Option("default_base", "text", "ID|NAME", "the knowledge base of a call that names none"),
    Option("default_results", "number", "N", "how many results a search gives that does not say (10)"),
    Option("text", "text", "json|passages", "how search results are written for who reads text (json)"),
    Option("import_from", "list", "FOLDER", "the only folders that files are added from"),
    Option("allow_networks", "list", "NETWORK", "private networks that pages are added from, 192.168.0.0/16"),
    Option("http", "switch", "", "serve HTTP instead of standard input and output"),
    Option("host", "text", "ADDRESS", "where to listen (127.0.0.1); elsewhere tokens are required"),
    Option("port", "number", "N", "the port (8090); 0 for any"),
    Option("jwt_secret", "secret", "", "the secret that HS256 tokens are signed with"),
    Option("jwt_secret_file", "path", "FILE", "a file that holds it"),
    Option("jwks", "path", "FILE", "the public keys that RS256 tokens are signed with"),
    Option("jwt_audience", "text", "NAME", "who a token has to be meant for"),
    Option("jwt_issuer", "text", "NAME", "who a token has to come from"),
    Option("log_level", "text", "LEVEL", "DEBUG, INFO, WARNING (default) or ERROR"),
)
_BY_NAME = {option.name: option for option in OPTIONS}


def parse_flags(arguments: Sequence[str] | None = None) -> dict[str, Any]:
    """The flags by the names of their settings, None where one was not given; leaves the process for ``--help``.

    Args:
        arguments: instead of the command line's.
    """
    parser = argparse.ArgumentParser(
        prog="rkllm-mcp-knowledge",
        description="MCP server: finds passages in the owner's documents, in Japanese and English.",
        epilog=f"Every setting is also a variable, {PREFIX}FOLDER, and a key of the file; keys and secrets only those.",
        # The beginning of a flag would be one too, and --jwt-secret take a secret for a file.
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=version())
    parser.add_argument("--config", metavar="FILE", help=f"settings as TOML; ${PREFIX}CONFIG")
    for option in OPTIONS:
        flag = f"--{option.name.replace('_', '-')}"
        if option.type == "switch":
            parser.add_argument(flag, action="store_true", default=None, help=option.help)
        elif option.type == "list":
            metavar = f"{option.help}; may be repeated"
            parser.add_argument(flag, action="append", metavar=option.metavar, help=metavar)
        elif option.type != "secret":
            parser.add_argument(flag, metavar=option.metavar, help=option.help)
    return vars(parser.parse_args(arguments))


def load_settings(flags: Mapping[str, Any], environ: Mapping[str, str]) -> Settings:
    """What was asked for.

    Args:
        flags: what ``read_flags`` read.
        environ: the environment.

    Raises:
        SettingsError: a setting cannot be used.
    """
    values = _file(flags.get("config") or environ.get(f"{PREFIX}CONFIG", ""))
    for option in OPTIONS:
        variable = f"{PREFIX}{option.name.upper()}"
        if environ.get(variable):
            values[option.name] = _read(option, environ[variable], variable)
        given = flags.get(option.name)
        if given is not None:
            values[option.name] = _read(option, given, f"--{option.name.replace('_', '-')}")
    return _settings(values, environ)


def _settings(values: Mapping[str, Any], environ: Mapping[str, str]) -> Settings:
    models = {each.name: values[each.name] for each in fields(ModelSettings) if each.name in values}
    models["sampling"] = not values.get("no_sampling", False)
    others = ("default_base", "default_results", "text", "import_from", "allow_networks", "log_level")
    settings = Settings(
        folder=values.get("folder") or _default_folder(environ),
        models=ModelSettings(**models),
        watch=tuple(map(_watch, values.get("watch", ()))),
        http=_http(values) if values.get("http") else None,
        **{name: values[name] for name in others if name in values},
    )
    _check(settings)
    return settings


def _check(settings: Settings) -> None:
    if settings.text not in ("json", "passages"):
        raise SettingsError(f"text is {settings.text!r}: give json or passages.")
    if not 1 <= settings.default_results <= MAX_RESULTS:
        raise SettingsError(f"default_results is {settings.default_results}: give a number from 1 to {MAX_RESULTS}.")
    try:
        [ipaddress.ip_network(network) for network in settings.allow_networks]
    except ValueError as error:
        raise SettingsError(f"allow_networks: {error}: give networks like 192.168.0.0/16.") from None
    if settings.log_level.upper() not in {"DEBUG", "INFO", "WARNING", "ERROR"}:
        raise SettingsError(f"log_level is {settings.log_level!r}: give DEBUG, INFO, WARNING or ERROR.")


def _http(values: Mapping[str, Any]) -> HttpSettings:
    secret: str = values.get("jwt_secret", "")
    file: Path | None = values.get("jwt_secret_file")
    if file is not None:
        try:
            secret = file.read_text("utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            reason = getattr(error, "strerror", None) or "it is no text"
            raise SettingsError(
                f"jwt_secret_file {file} cannot be read ({reason}): give a file with a secret."
            ) from None
    if (secret or file) and len(secret.encode()) < _MIN_SECRET_BYTES:
        raise SettingsError(f"The JWT secret is too short: give at least {_MIN_SECRET_BYTES} bytes, as HS256 wants.")
    tokens = TokenSettings(secret, values.get("jwks"), values.get("jwt_audience", ""), values.get("jwt_issuer", ""))
    http = HttpSettings(values.get("host", "127.0.0.1"), values.get("port", 8090), tokens)
    if not is_loopback(http.host) and not tokens.is_configured:
        raise SettingsError(
            f"Off loopback ({http.host}) everybody could read everything: give jwt_secret_file or jwks, or listen on"
            " 127.0.0.1."
        )
    return http


def _watch(text: str) -> WatchedFolder:
    folder, equals, base = text.rpartition("=")
    if not equals or not folder or not base.strip():
        raise SettingsError(f"watch is {text!r}: give FOLDER=KB, the knowledge base by its id or name.")
    return WatchedFolder(Path(folder).expanduser(), base.strip())


def _default_folder(environ: Mapping[str, str]) -> Path:
    # The XDG specification tells to ignore a relative path.
    given = Path(environ.get("XDG_DATA_HOME", ""))
    home = Path(environ.get("HOME") or Path.home())
    return (given if given.is_absolute() else home / ".local" / "share") / "rkllm-mcp" / "knowledge"


def _file(path: str) -> dict[str, Any]:
    """The settings of a file; relative paths in it begin in its folder."""
    if not path:
        return {}
    file = Path(path).expanduser()
    try:
        with file.open("rb") as opened:
            table = tomllib.load(opened)
    except OSError as error:
        raise SettingsError(f"The settings {file} cannot be read ({error.strerror}): check the path.") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SettingsError(f"The settings {file} are no TOML ({error}): mend the line.") from None
    unknown = [key for key in table if key not in _BY_NAME]
    if unknown:
        known = ", ".join(_BY_NAME)
        raise SettingsError(f"The settings {file} have an unknown key {unknown[0]!r}: known are {known}.")
    return {
        key: _read(_BY_NAME[key], value, f"{key} in {file}", file.absolute().parent) for key, value in table.items()
    }


def _read(option: Option, value: Any, where: str, folder: Path | None = None) -> Any:
    if option.type == "list":
        items = cast("Sequence[Any]", value) if isinstance(value, list) else str(value).split(",")
        texts = [str(item).strip() for item in items if str(item).strip()]
        if option.name == "import_from":
            return tuple(_path(text, folder) for text in texts)
        return tuple(str(_path(text, folder)) for text in texts) if option.name == "watch" else tuple(texts)
    if option.type == "switch":
        return _switch(value, where)
    if option.type == "number":
        return _number(value, where)
    if not isinstance(value, str):
        raise SettingsError(f"{where} is no text: give {option.help}.")
    return _path(value, folder) if option.type == "path" else value.strip()


def _path(text: str, folder: Path | None) -> Path:
    path = Path(text).expanduser()
    return path if folder is None else folder / path


def _switch(value: Any, where: str) -> bool:
    if isinstance(value, bool):
        return value
    word = str(value).strip().lower()
    if word not in {"1", "true", "yes", "on", "0", "false", "no", "off"}:
        raise SettingsError(f"{where} is {value!r}: give true or false.")
    return word in {"1", "true", "yes", "on"}


def _number(value: Any, where: str) -> int:
    is_number = isinstance(value, int) and not isinstance(value, bool)
    if not is_number and not (isinstance(value, str) and value.strip().isdecimal()):
        raise SettingsError(f"{where} is {value!r}: give a whole number.")
    return int(value)
