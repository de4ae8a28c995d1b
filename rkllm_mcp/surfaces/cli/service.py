"""``rkllm-mcp service``: install, uninstall and show the systemd unit, of the system or of one user.

Only the unit file is written and systemd called; ``uninstall`` removes both and leaves the service's stored data.

The text of the unit is ``system_unit.service.txt`` or ``user_unit.service.txt``. The board's devices are listed one by
one; the rest of /dev, the capabilities and most system calls are closed. /home and /tmp are hidden except for the
folders that the service needs; ``service_account`` chooses who it runs as. Two things stay open: writable and
executable memory, which ctypes callbacks and tool servers with a JIT need, and the network, which tools use.
"""

from __future__ import annotations

import getpass
import grp
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any, cast
from urllib.parse import urlsplit

import typer

from rkllm_base.addresses import is_loopback
from rkllm_base.answers import AnswerLimits, AnswerRefusedError, fetch_now, read_json
from rkllm_base.folders import user_folder
from rkllm_mcp.app.gauges import npu_devices
from rkllm_mcp.app.settings import model_files
from rkllm_mcp.app.stored import open_stored
from rkllm_mcp.catalogue import read_catalogue
from rkllm_mcp.config.loading import CREDENTIALS
from rkllm_mcp.config.sections import Config, own_web_address, reached_host, web_address
from rkllm_mcp.config.servers import BuiltinServer, StdioServer
from rkllm_mcp.errors import RkllmMcpError, UsageError
from rkllm_mcp.models.cards import model_directories, user_root
from rkllm_mcp.surfaces.cli.files import filled_template, make_folder, write_whole
from rkllm_mcp.surfaces.cli.options import AsJson, System, command, flag, option
from rkllm_mcp.surfaces.cli.service_account import Account, account_of, open_to_service
from rkllm_mcp.surfaces.invocation import EXIT_ANSWER_FAILED, EXIT_DONE, Session
from rkllm_mcp.surfaces.running_service import running_services, service_for
from rkllm_mcp.surfaces.terminal import wants_color
from rkllm_mcp.text import moment

UNIT_NAME = "rkllm-mcp.service"
# What importing, connecting and closing may take in addition to what the configuration grants, seconds.
_MARGIN_S = 60
SYSTEM_FOLDER = Path("/etc/systemd/system")
# systemctl waits for the service where it has to; the longest that loading a model is known to take fits in.
_LIMIT_S = 600
_LINGER_S = 60
_CREDENTIAL = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_SHOWN = (
    ("ActiveState", "state"),
    ("StatusText", "says"),
    ("MainPID", "process"),
    ("ActiveEnterTimestamp", "since"),
    ("NRestarts", "restarts"),
    ("MemoryCurrent", "memory"),
    ("FragmentPath", "unit"),
)


_REFERENCE = re.compile(r"(?<!\\)\$\{([A-Za-z_][A-Za-z0-9_]*)")
# Variables that a service has as well, or that every configuration has.
_HANDED_OVER = frozenset({"HOME", "USER", "LOGNAME", "SHELL", "PATH", "LANG", "PYTHON"})


# Folders that a service does not see, except the parts that it needs.
_HIDDEN = ("/home", "/root", "/run/user", "/tmp", "/var/tmp")  # noqa: S108


@dataclass(frozen=True)
class UnitOptions:
    """Settings of a unit."""

    program: Sequence[str]  # the words that start ``rkllm-mcp``
    config: Path  # the configuration file
    start_s: float  # time limit for loading the model, seconds
    drain_s: float  # time limit for running answers when the service stops, seconds
    devices: Sequence[str] = ()  # the device nodes that the NPU needs
    groups: Sequence[str] = ()  # groups that own them
    readable: Sequence[Path] = ()  # files and folders that the service reads, mainly those below /home
    writable: Sequence[Path] = ()  # folders that tools may change
    credentials: Sequence[tuple[str, Path]] = ()  # names, and the files that hold the secrets
    # Variables that the configuration refers to and that only this environment has, each a credential to be written.
    unsaved: Sequence[str] = ()
    user: str = ""  # the account of the system's unit; empty for one that exists only while the service runs
    environment: Sequence[tuple[str, str]] = ()  # further variables
    namespaces: bool = False  # tool servers run in a sandbox, which needs namespaces


def unit_text(wishes: UnitOptions, *, is_user: bool) -> str:
    """Return the unit for the whole machine, with the hardening that root can grant, or for a user's own systemd.

    It is its template without comments, and without the lines that are not needed.
    """
    paths = (*wishes.readable, *wishes.writable)
    hidden = {path for path in paths if any(map(path.is_relative_to, _HIDDEN))}
    directives = {
        "BindReadOnlyPaths": [
            path for path in paths if path in hidden and not any(map(path.is_relative_to, wishes.writable))
        ],
        "BindPaths": [path for path in wishes.writable if path in hidden],
        "ReadWritePaths": [path for path in wishes.writable if path not in hidden],
    }
    calls = ["@system-service @mount"] if wishes.namespaces else ["@system-service", "~@privileged"]
    values = {
        "COMMAND": " ".join(map(_word, [*wishes.program, "--config", str(wishes.config), "serve"])),
        "START_S": str(round(wishes.start_s) + _MARGIN_S),
        "STOP_S": str(round(wishes.drain_s) + _MARGIN_S),
        "CREDENTIALS": _lines("LoadCredential", [f"{name}:{path}" for name, path in wishes.credentials]),
        "GROUPS": _lines("SupplementaryGroups", [" ".join(wishes.groups)] if wishes.groups else []),
        "DEVICES": _lines("DeviceAllow", [f"{device} rw" for device in wishes.devices]),
        # RemoveIPC would remove that of the person's other programs.
        "ACCOUNT": f"User={_word(wishes.user)}" if wishes.user else "DynamicUser=yes\nRemoveIPC=yes",
        "ENVIRONMENT": _lines("Environment", [_word(f"{name}={value}") for name, value in wishes.environment]),
        "PATHS": "\n".join(_lines(key, [_word(str(path)) for path in chosen]) for key, chosen in directives.items()),
        "NAMESPACES": "user mnt pid ipc uts net cgroup" if wishes.namespaces else "yes",
        "SYSTEM_CALLS": _lines("SystemCallFilter", calls),
    }
    # Comments are for readers of the template; a value that is not needed is one, too.
    template = "user_unit.service" if is_user else "system_unit.service"
    return re.sub(r"^#.*\n", "", filled_template(template, values), flags=re.MULTILINE)


def _lines(key: str, values: Sequence[str]) -> str:
    return "\n".join(f"{key}={value}" for value in values) or "# none"


def _word(text: str) -> str:
    """A word as a unit writes it: quoted where it must be, and nothing in it expanded."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%").replace("$", "$$")
    return f'"{escaped}"' if any(character in " \t;'\"\\" for character in text) else escaped


class UnitLocation:
    """Location of the unit: the system's systemd or, with ``is_user``, a user's.

    Attributes:
        file: the unit file.
        advice: the end of the error for a unit file that cannot be changed.
        systemctl: the words that begin a command line of it.
        journal: the options of journalctl that choose the unit.
        log_command: the command that shows the service's log.
    """

    def __init__(self, is_user: bool) -> None:
        self.is_user = is_user
        folder = user_folder("config").with_name("systemd") / "user" if is_user else SYSTEM_FOLDER
        self.file = folder / UNIT_NAME
        self.advice = "" if is_user else "; run it with sudo, or for yourself alone with --user"
        self.systemctl = ["systemctl", *(["--user"] if is_user else [])]
        # --user would read the user's own files alone, which a journal in memory does not have.
        self.journal = ["--user-unit" if is_user else "-u", UNIT_NAME]
        self.log_command = f"journalctl {' '.join(self.journal)} -n 50"

    def run(self, *words: str, advice: str = "", by_sudo: bool = False) -> str:
        """Run systemctl and return its output; if it fails, a ServiceControlError ends with ``advice``.

        With ``by_sudo`` an account that is not root's uses sudo for the system's unit.
        """
        command = [*(["sudo"] if by_sudo and not self.is_user and os.geteuid() else []), *self.systemctl, *words]
        see = f"; see: {advice}" if advice else ""
        began = int(time.time())
        try:
            completed = subprocess.run(command, check=False, capture_output=True, text=True, timeout=_LIMIT_S)
        except subprocess.TimeoutExpired:
            raise ServiceControlError(f"'{' '.join(command)}' did not end within {_LIMIT_S} s{see}") from None
        if completed.returncode:
            message = " ".join(completed.stderr.split()) or f"exit code {completed.returncode}"
            if advice and shutil.which("journalctl") is not None:
                # The program's own sentence is better, if the journal has it and is open.
                query = ["journalctl", "-q", *self.journal, "--since", f"@{began}", "-o", "cat", "--no-pager"]
                with suppress(subprocess.TimeoutExpired):
                    log = subprocess.run(
                        query, check=False, capture_output=True, text=True, errors="replace", timeout=30
                    )
                    errors = [line for line in log.stdout.splitlines() if line.startswith("Error: ")]
                    if errors:
                        message = errors[-1].removeprefix("Error: ") or message
            raise ServiceControlError(f"'{' '.join(command)}' failed: {message}{see}")
        return completed.stdout


class ServiceControlError(RkllmMcpError):
    """systemctl failed."""


def unit_options(session: Session, credentials: Sequence[str] = ()) -> UnitOptions:
    """Return the settings of the unit for the configuration in use; ``credentials`` are ``NAME=FILE`` each."""
    pairs: list[tuple[str, Path]] = []
    for text in credentials:
        name, equals, file = text.partition("=")
        path = Path(file).expanduser().absolute()
        if not equals or not _CREDENTIAL.fullmatch(name) or not path.is_file():
            raise UsageError(
                f"--credential {text!r} is not NAME=FILE with a file that exists, as in API_KEY=/etc/api.key"
            )
        pairs.append((name, path))
    # What systemd will hand over is not here yet; any value does to check the rest.
    environment = {**os.environ, **dict.fromkeys((name for name, _ in pairs), "credential")}
    config = session.config(environment)
    if config.origin.source is None:
        raise UsageError("there is no configuration file; 'rkllm-mcp setup' makes one")
    source = config.origin.source.absolute()
    referred = dict.fromkeys(_REFERENCE.findall(source.read_text("utf-8")))
    credential_files = dict(pairs)
    # Variables that only this environment has, and the service would not.
    unsaved = [name for name in referred if name in os.environ and name not in {*credential_files, *_HANDED_OVER}]
    saved = {name: source.parent / CREDENTIALS / name for name in referred if name not in credential_files}
    kept = {name: path for name, path in saved.items() if name in unsaved or path.is_file()}
    pairs += kept.items()
    devices = npu_devices()
    account = account_of(source)
    groups = {account.group} - {""}
    for device in devices:
        # The group of a device node, where it may use the device and is not root's.
        with suppress(OSError, KeyError):
            status = Path(device).stat()
            if status.st_gid and status.st_mode & 0o060 == 0o060:
                groups.add(grp.getgrgid(status.st_gid).gr_name)
    script = Path(sys.executable).parent / "rkllm-mcp"
    servers = [server for server in config.active_servers if isinstance(server, StdioServer)]
    # The page adds servers to the configuration.
    writable = [account.data, source.parent] if account.user else []
    writable += [path.absolute() for path in config.security.roots]
    for server in config.active_servers:
        if isinstance(server, BuiltinServer) and server.folder is not None and server.write:
            writable.append(server.folder.absolute())
    return UnitOptions(
        program=(str(script),) if script.is_file() else (sys.executable, "-m", "rkllm_mcp"),
        config=source,
        start_s=config.runtime.start_timeout_s,
        drain_s=config.service.drain_s,
        devices=devices,
        groups=sorted(groups),
        readable=tuple(dict.fromkeys(_readable(config, source, account))),
        writable=tuple(dict.fromkeys(writable)),
        credentials=tuple(pairs),
        unsaved=unsaved,
        namespaces=any(config.security.sandbox if server.sandbox is None else server.sandbox for server in servers),
        user=account.user,
        environment=tuple(_environment(config, account)),
    )


app = typer.Typer(no_args_is_help=True)

_User = Annotated[bool, flag("Use your user's systemd instead of the system's.", "--user")]


@command(app, "install")
def install(
    session: Session,
    is_user: _User = False,
    credentials: Annotated[
        list[str] | None,
        option("Secret that the configuration refers to as ${NAME}; may be repeated.", "NAME=FILE", "--credential"),
    ] = None,
    no_start: Annotated[bool, flag("Install the service without starting it.", "--no-start")] = False,
    only_print: Annotated[bool, flag("Print the unit without installing it.", "--print")] = False,
) -> int:
    """Install and start a systemd unit for the current configuration."""
    wishes = unit_options(session, credentials or ())
    text = unit_text(wishes, is_user=is_user)
    if only_print:
        sys.stdout.write(text)
        return EXIT_DONE
    unit = UnitLocation(is_user)
    _need_systemctl("install")
    for name, file in wishes.credentials:
        if name in wishes.unsaved:
            # For root and the owner of the configuration, whose commands need it, too.
            owner = wishes.config.stat()
            with suppress(OSError):
                make_folder(file.parent)
            write_whole(file, f"{os.environ[name]}\n", unit.advice)
            if os.geteuid() == 0:
                os.chown(file, owner.st_uid, owner.st_gid)
            session.status(f"Wrote {file}: the service reads {name} there, and no other account can")
    if not is_user:
        open_to_service(account_of(wishes.config), wishes.config, wishes.readable)
    write_whole(unit.file, text, unit.advice, 0o644)
    session.status(f"Wrote {unit.file}")
    unit.run("daemon-reload")
    unit.run("enable", UNIT_NAME)
    if no_start:
        session.status(f"Start it with: {' '.join([*unit.systemctl, 'start', UNIT_NAME])}")
        return EXIT_DONE
    session.status("Starting; the model is being loaded …")
    unit.run("restart", UNIT_NAME, advice=unit.log_command)
    stays = not is_user
    if is_user and shutil.which("loginctl") is not None:
        # Let the services of this user start with the machine, unless that takes root.
        words = ["loginctl", "enable-linger"]
        lingering = subprocess.run(words, check=False, capture_output=True, stdin=subprocess.DEVNULL, timeout=_LINGER_S)
        stays = lingering.returncode == 0
    if not stays:
        session.status(f"It ends when you log out, unless you say: sudo loginctl enable-linger {getpass.getuser()}")
    return status(session, is_user)


@command(app, "uninstall")
def uninstall(session: Session, is_user: _User = False) -> int:
    """Stop the service and remove its unit; stored data is kept."""
    unit = UnitLocation(is_user)
    if not unit.file.is_file():
        raise UsageError(f"there is no {unit.file}; nothing was installed{'' if is_user else ', or was with --user'}")
    is_controlled = has_systemd()
    if is_controlled:
        unit.run("disable", "--now", UNIT_NAME)
    try:
        unit.file.unlink()
    except OSError as error:
        raise UsageError(f"{unit.file} cannot be removed ({error.strerror}){unit.advice}") from None
    if is_controlled:
        unit.run("daemon-reload")
    session.status(f"Removed {unit.file}; what it remembered stays in its state folder")
    if is_user and Path("/var/lib/systemd/linger", getpass.getuser()).exists():
        session.status("Services of yours still start without a login; to end that: loginctl disable-linger")
    return EXIT_DONE


@command(app, "start")
def start(session: Session, is_user: _User = False) -> int:
    """Start the service and wait until its model is loaded."""
    return _control(session, "start", is_user=is_user)


@command(app, "stop")
def stop(session: Session, is_user: _User = False) -> int:
    """Stop the service; answers that are being written get [service] drain_s to end."""
    return _control(session, "stop", is_user=is_user)


@command(app, "restart")
def restart(session: Session, is_user: _User = False) -> int:
    """Restart the service, for example after an update."""
    return _control(session, "restart", is_user=is_user)


def _control(session: Session, verb: str, *, is_user: bool) -> int:
    unit = find_installed(verb, is_user=is_user)
    unit.run(verb, UNIT_NAME, advice=unit.log_command)
    session.status("Started." if verb == "start" else "Stopped." if verb == "stop" else "Restarted.")
    return EXIT_DONE


@command(app, "logs")
def logs(
    session: Session,
    is_user: _User = False,
    lines: Annotated[int, option("Number of lines.", "N", "--lines", "-n", min=1)] = 50,
    follow: Annotated[bool, flag("Show new lines as they are written, until Ctrl-C.", "--follow", "-f")] = False,
) -> int:
    """Show the log of the service, from the journal."""
    del session
    unit = find_installed("logs", is_user=is_user)
    if shutil.which("journalctl") is None:
        raise UsageError("this machine has no journalctl; the log is where its system keeps that of services")
    words = ["journalctl", *unit.journal, "-n", str(lines), "--no-pager"]
    with suppress(KeyboardInterrupt):
        return subprocess.run([*words, *(["-f"] if follow else [])], check=False).returncode
    return EXIT_DONE


def find_installed(verb: str, *, is_user: bool = False) -> UnitLocation:
    """Return the installed unit: the user's with ``is_user`` or if only that exists; else a UsageError."""
    _need_systemctl(verb)
    locations = [UnitLocation(True)] if is_user else [UnitLocation(False), UnitLocation(True)]
    for location in locations:
        if location.file.is_file():
            return location
    raise UsageError(f"there is no service; install it: rkllm-mcp service install{' --user' if is_user else ''}")


@command(app, "status")
def status(session: Session, is_user: _User = False, as_json: AsJson = False) -> int:
    """Show the state of the service; exit code 1 unless it is active."""
    _need_systemctl("status")
    unit = UnitLocation(is_user or (not UnitLocation(False).file.is_file() and UnitLocation(True).file.is_file()))
    names = ",".join(name for name, _ in _SHOWN)
    output = unit.run("show", "--property", f"LoadState,{names}", UNIT_NAME)
    values = {name: value for name, _, value in (line.partition("=") for line in output.splitlines())}
    if values.get("LoadState") != "loaded":
        raise UsageError(f"there is no service; install it: rkllm-mcp service install{' --user' if is_user else ''}")
    is_active = values.get("ActiveState") == "active"
    # A kernel may count no memory. A service that ended has no process, and what it said last is over.
    absent = {"", "[not set]"} if is_active else {"", "[not set]", "0", values.get("StatusText")}
    values_shown = {name: values[name] for name, _ in _SHOWN if values.get(name, "") not in absent}
    word = session.terminal.word
    rows: list[tuple[str, str]] = []
    for name, label in _SHOWN:
        value = values_shown.get(name)
        if value is not None:
            is_bytes = name == "MemoryCurrent" and value.isdigit()
            rows.append((word(label), word(f"{int(value) / 2**20:.0f} MB" if is_bytes else value)))
    session.show(values_shown, session.terminal.table((), rows), as_json=as_json)
    if is_active:
        return EXIT_DONE
    session.status(f"Its log: {unit.log_command}")
    return EXIT_ANSWER_FAILED


def _readable(config: Config, source: Path, account: Account) -> Iterator[Path]:
    """Yield the paths that the service reads; those outside /home are readable anyway."""
    yield source.parent
    yield Path(sys.prefix)
    yield Path(sys.base_prefix)
    yield Path(__file__).resolve().parents[3]
    yield from model_files(config, model_directories({**os.environ, "XDG_DATA_HOME": str(account.data.parent)}))
    if not account.user and account.data.is_dir():
        yield account.data
    if config.runtime.library not in {"auto", "emulator"}:
        yield Path(config.runtime.library).absolute().parent
    for server in config.active_servers:
        if isinstance(server, BuiltinServer) and server.folder is not None:
            yield server.folder.absolute()
        if isinstance(server, StdioServer):
            program = shutil.which(server.command)
            if program is not None:
                yield Path(program).parent
            if server.cwd is not None:
                yield server.cwd.absolute()


def _environment(config: Config, account: Account) -> Iterator[tuple[str, str]]:
    """Yield the variables with which the service finds the models and runtimes that its owner's commands use.

    Those of root are read; what the service downloads itself goes to its own folder.
    """
    from rkllm_mcp.models.llama import FOLDER_VARIABLE, llama_folder
    from rkllm_mcp.models.runtimes import library_in_use

    if account.user:
        yield "XDG_DATA_HOME", str(account.data.parent)
        return
    for variable, path in (("RKLLM_MCP_MODELS", user_root()), (FOLDER_VARIABLE, llama_folder())):
        if path.is_dir():
            yield variable, str(path)
    library = library_in_use(config.runtime.library)
    if config.runtime.library == "auto" and library is not None and library.is_relative_to(account.data.resolve()):
        yield "RKLLM_MCP_RUNTIME__LIBRARY", str(library)


def _need_systemctl(verb: str) -> None:
    """Raise a UsageError that says how to do without systemd what ``verb`` would do, if systemd does not run here."""
    if has_systemd():
        return
    remedy = "start the assistant another way: rkllm-mcp serve"
    running = running_services()
    if verb == "status":
        remedy = "see how the assistant is with: rkllm-mcp status"
    elif verb == "logs":
        remedy = "'rkllm-mcp serve' writes its log to the terminal that it runs in"
    elif verb == "stop":
        remedy = (
            f"end the assistant with: kill {running[0].pid}" if running else "you have no running assistant to stop"
        )
    elif verb == "restart" and running:
        remedy = f"end the assistant (kill {running[0].pid}), then start it again: rkllm-mcp serve"
    raise UsageError(f"systemd does not run on this machine; {remedy}")


def stop_command(pid: int) -> str:
    """Return the command that stops a running assistant: that of the service, if systemd runs the process."""
    with suppress(OSError):
        if UNIT_NAME in Path(f"/proc/{pid}/cgroup").read_text("utf-8"):
            return "rkllm-mcp service stop"
    return f"kill {pid}"


def has_systemd() -> bool:
    """Return whether systemd runs here; in most containers it does not, even where it is installed."""
    if shutil.which("systemctl") is None:
        return False
    words = ["systemctl", "is-system-running"]
    state = subprocess.run(words, check=False, capture_output=True, text=True, timeout=_LIMIT_S)
    return state.stdout.strip() != "offline"


# State folder of the system's unit, whose user is made by systemd; root may read and write it.
SYSTEM_STATE = Path("/var/lib/rkllm-mcp")


def system_data() -> Path:
    """Return the data folder of the system's service: that of the person it runs as, else one in its state folder."""
    unit = UnitLocation(False).file
    text = unit.read_text("utf-8") if unit.is_file() else ""
    line = re.search(r'^Environment="?XDG_DATA_HOME=(.*?)"?$', text, re.MULTILINE)
    folder = Path(re.sub(r'\\([\\"])|([%$])\2', r"\1\2", line[1])) if line else SYSTEM_STATE / ".local" / "share"
    return folder / "rkllm-mcp"


def used_port(config: Config) -> int:
    """Return the port of the service that runs with this configuration, else the configured one."""
    running = service_for(config)
    return (urlsplit(running.address).port if running else None) or config.service.port


def local_address(config: Config) -> str:
    """Return the address of the service as this machine reaches it."""
    return own_web_address(config.service.host, used_port(config))


def readiness(config: Config) -> str:
    """Return the state that the service at ``local_address`` reports, ``ok`` if it answers; empty if none does."""
    import httpx2

    limits = AnswerLimits(total_s=5.0, size_bytes=65_536)
    try:
        client = httpx2.Client(timeout=limits.total_s, trust_env=False)
        with client:
            value = read_json(fetch_now(client, "GET", f"{local_address(config)}/readyz", limits).content)
    except (httpx2.HTTPError, AnswerRefusedError):
        return ""
    if not isinstance(value, dict):
        return ""
    report = cast("dict[str, Any]", value)
    if "status" in report:
        return str(report["status"])
    error = report.get("error")
    return str(cast("dict[str, Any]", error).get("message", "")) if isinstance(error, dict) else ""


async def show_link(config: Config, is_system: bool) -> None:
    """Print the address of the page with a new code, and its QR code if other devices reach it."""
    async with open_stored(config, SYSTEM_STATE if is_system else None) as store:
        code = await store.devices.new_code()
    host = config.service.host
    address = f"{web_address(reached_host(host), used_port(config))}/#/link/{code}"
    if not is_loopback(host) and sys.stdout.isatty():
        sys.stdout.write(qr_text(address, color=wants_color(sys.stdout)))
    sys.stdout.write(f"{address}\n")
    sys.stdout.flush()


def qr_text(text: str, *, color: bool) -> str:
    """Return a QR code as lines of half blocks, dark on light; without colours for terminals with a dark background."""
    import segno

    rows = [[bool(dark) for dark in row] for row in segno.make(text, error="l", micro=False).matrix_iter(border=2)]
    rows += [[False] * len(rows[0])] * (len(rows) % 2)
    blocks = {(False, False): "█", (False, True): "▀", (True, False): "▄", (True, True): " "}
    pairs = (zip(upper, lower, strict=True) for upper, lower in zip(rows[::2], rows[1::2], strict=True))
    lines = ["".join(map(blocks.__getitem__, pair)) for pair in pairs]
    # Light modules are drawn: white on black with any colours of the terminal.
    return "".join(f"\x1b[97;40m{line}\x1b[0m\n" if color else f"{line}\n" for line in lines)


@command(app, "link")
async def link_command(session: Session, system: System = False) -> None:
    """Show the page's address with a code that links a device, once and for five minutes, and its QR code.

    A phone reaches the page only if the service listens beyond this machine: [service] host = "0.0.0.0" in the
    configuration, and a key ('rkllm-mcp config add-key'); 'rkllm-mcp setup --lan' sets both in a new configuration.
    """
    config = session.config()
    await show_link(config, system)
    phrases = read_catalogue(session.language(config))
    if is_loopback(config.service.host):
        session.status(phrases.sentence("setup.page_here"))
    if not readiness(config):
        session.status(phrases.sentence("link.nothing_runs"))


@command(app, "keys")
async def keys_command(
    session: Session,
    revoke: Annotated[str | None, option("Revoke the key of this device.", "ID")] = None,
    system: System = False,
    as_json: AsJson = False,
) -> None:
    """List the devices and programs that have a key, or revoke one."""
    async with open_stored(session.config(), SYSTEM_STATE if system else None) as store:
        if revoke is not None and not await store.devices.revoke(revoke):
            raise UsageError(f"there is no device {revoke!r}; 'rkllm-mcp service keys' lists them")
        devices = await store.devices.all()
    rows = [
        (device.id, moment(device.linked), ", ".join(device.rights) or session.terminal.word("all"), device.name)
        for device in devices
    ]
    none = "No device has a key; 'rkllm-mcp service link' links one."
    session.show(
        list(map(asdict, devices)),
        session.terminal.table(("ID", "LINKED", "RIGHTS", "DEVICE"), rows),
        as_json=as_json,
        none=none,
    )
