"""The text of the systemd unit: the command, the permitted paths and devices, and the hardening.

The board's devices are listed one by one; the rest of /dev, the capabilities and most system calls are closed. /home
and /tmp are hidden except for the folders that the service needs. Two things stay open: writable and executable memory,
which ctypes callbacks and tool servers with a JIT need, and the network, which tools use.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

NAME = "rkllm-mcp"
UNIT_NAME = f"{NAME}.service"
# A sign of life comes three times in this.
WATCHDOG_S = 60
# What importing, connecting and closing may take beside what the configuration grants, seconds.
_MARGIN_S = 60


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
    namespaces: bool = False  # tool servers run in a sandbox, which needs namespaces


def system_unit(wishes: UnitOptions) -> str:
    """The unit for the whole machine: a user that exists while it runs, and the hardening that root can grant."""
    lines = [*_head(), *_service(wishes), *_folders(), *_identity(wishes), *_devices(wishes), *_hardening(wishes)]
    return _text([*lines, "", "[Install]", "WantedBy=multi-user.target"])


def user_unit(wishes: UnitOptions) -> str:
    """The unit for one person's own systemd, which can close less."""
    closed = ["NoNewPrivileges=yes", "LockPersonality=yes", "RestrictRealtime=yes", "RestrictSUIDSGID=yes"]
    closed += ["SystemCallArchitectures=native", "UMask=0077"]
    return _text([*_head(), *_service(wishes), *closed, "", "[Install]", "WantedBy=default.target"])


def _head() -> list[str]:
    return [
        "[Unit]",
        "Description=rkllm-mcp, an assistant on the NPU",
        "Wants=network-online.target",
        "After=network-online.target",
        # A model that never stays loaded does not mend itself either.
        "StartLimitIntervalSec=600",
        "StartLimitBurst=5",
        "",
    ]


def _service(wishes: UnitOptions) -> list[str]:
    command = [*wishes.program, "--config", str(wishes.config), "serve"]
    return [
        "[Service]",
        "Type=notify",
        "NotifyAccess=main",
        f"ExecStart={' '.join(map(_word, command))}",
        "ExecReload=/bin/kill -HUP $MAINPID",
        f"TimeoutStartSec={round(wishes.start_s) + _MARGIN_S}",
        f"TimeoutStopSec={round(wishes.drain_s) + _MARGIN_S}",
        f"WatchdogSec={WATCHDOG_S}",
        # Loading a model maps thousands of buffers (rknn-llm #62); the runtime's demo asks for as many.
        "LimitNOFILE=102400",
        "Restart=on-failure",
        "RestartSec=3",
        # A wrong configuration does not mend itself.
        "RestartPreventExitStatus=2",
        "KillMode=mixed",
        *(f"LoadCredential={name}:{path}" for name, path in wishes.credentials),
    ]


def _folders() -> list[str]:
    return [
        f"StateDirectory={NAME}",
        f"CacheDirectory={NAME}",
        "StateDirectoryMode=0700",
        "CacheDirectoryMode=0700",
        f"WorkingDirectory=%S/{NAME}",
        f"Environment=HOME=%S/{NAME} RKLLM_MCP_STATE=%S/{NAME} XDG_CACHE_HOME=%C/{NAME}",
    ]


def _identity(wishes: UnitOptions) -> list[str]:
    groups = [f"SupplementaryGroups={' '.join(wishes.groups)}"] if wishes.groups else []
    return ["DynamicUser=yes", *groups]


def _devices(wishes: UnitOptions) -> list[str]:
    return ["DevicePolicy=closed", *(f"DeviceAllow={device} rw" for device in wishes.devices)]


def _hardening(wishes: UnitOptions) -> list[str]:
    hidden = [path for path in (*wishes.readable, *wishes.writable) if _is_hidden(path)]
    seen = [f"BindReadOnlyPaths={_word(str(path))}" for path in hidden if path not in wishes.writable]
    seen += [f"BindPaths={_word(str(path))}" for path in wishes.writable if _is_hidden(path)]
    seen += [f"ReadWritePaths={_word(str(path))}" for path in wishes.writable if not _is_hidden(path)]
    return [
        "ProtectSystem=strict",
        "ProtectHome=tmpfs",
        *seen,
        "PrivateTmp=yes",
        "NoNewPrivileges=yes",
        "CapabilityBoundingSet=",
        "AmbientCapabilities=",
        "ProtectKernelTunables=yes",
        "ProtectKernelModules=yes",
        "ProtectKernelLogs=yes",
        "ProtectControlGroups=yes",
        "ProtectClock=yes",
        "ProtectHostname=yes",
        "ProtectProc=invisible",
        "LockPersonality=yes",
        f"RestrictNamespaces={'user mnt pid ipc uts net cgroup' if wishes.namespaces else 'yes'}",
        "RestrictRealtime=yes",
        "RestrictSUIDSGID=yes",
        "RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6",
        "RemoveIPC=yes",
        "KeyringMode=private",
        "SystemCallArchitectures=native",
        f"SystemCallFilter={'@system-service @mount' if wishes.namespaces else '@system-service'}",
        *([] if wishes.namespaces else ["SystemCallFilter=~@privileged"]),
        "SystemCallErrorNumber=EPERM",
        "UMask=0077",
    ]


def _is_hidden(path: Path) -> bool:
    """Return True if ProtectHome or PrivateTmp hides the path."""
    return any(path.is_relative_to(place) for place in ("/home", "/root", "/run/user", "/tmp", "/var/tmp"))  # noqa: S108


def _word(text: str) -> str:
    """A word as a unit writes it: quoted where it must be, and nothing in it expanded."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%").replace("$", "$$")
    return f'"{escaped}"' if any(character in " \t;'\"\\" for character in text) else escaped


def _text(lines: Sequence[str]) -> str:
    return "\n".join(lines) + "\n"
