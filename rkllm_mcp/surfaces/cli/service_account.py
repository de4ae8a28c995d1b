"""The account that a unit of the system runs as, and what it may read.

With a configuration of a person, that person's: the file is private, as ``setup`` writes it, and the models and the
folders that tools change are in that home. With one of root, an account that exists only while the service runs; a
private file is opened to its own group, which the unit adds.
"""

from __future__ import annotations

import grp
import os
import pwd
import shutil
import stat
import subprocess
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from rkllm_base.folders import user_folder
from rkllm_mcp.errors import UsageError
from rkllm_mcp.surfaces.cli.files import make_folder

# Another name than the service's, which systemd gives to the account that it makes.
CONFIG_GROUP = "rkllm-config"
_LIMIT_S = 60


@dataclass(frozen=True)
class Account:
    """The account of a service."""

    user: str  # the owner of the configuration; empty for an account that exists only while the service runs
    group: str  # the group that reads the configuration where others may not; empty if none is needed
    data: Path  # the folder with the models and runtimes that its commands use


def account_of(config: Path) -> Account:
    """Return the account for a configuration file."""
    status = config.stat()
    if status.st_uid:
        try:
            person = pwd.getpwuid(status.st_uid)
        except KeyError:
            return Account(str(status.st_uid), "", user_folder("data"))
        # With sudo the environment is root's.
        environment = os.environ if os.geteuid() == status.st_uid else {"HOME": person.pw_dir}
        return Account(person.pw_name, "", user_folder("data", environment))
    group = ""
    if not status.st_mode & stat.S_IROTH:
        # The group that the file is open to; the service's own if that is none or root's.
        group = CONFIG_GROUP
        if status.st_gid and status.st_mode & stat.S_IRGRP:
            try:
                group = grp.getgrgid(status.st_gid).gr_name
            except KeyError:
                group = str(status.st_gid)
    return Account("", group, user_folder("data"))


def open_to_service(account: Account, config: Path, readable: Iterable[Path]) -> None:
    """Make what the account reads readable: the configuration by a group, the folder of models by its existence.

    Raises:
        UsageError: a folder is closed to the service, or the group cannot be made.
    """
    if account.user:
        try:
            # A unit does not show a folder that is made later.
            make_folder(account.data)
        except OSError as error:
            raise UsageError(f"{account.data} cannot be made ({error.strerror}); run it with sudo") from None
        return
    if account.group == CONFIG_GROUP:
        command = ["groupadd", "--system", "--force", CONFIG_GROUP]
        if shutil.which(command[0]) is None:
            raise UsageError(
                f"{command[0]} is not installed, and {config} is private; let a group read it, or all: chmod"
            )
        completed = subprocess.run(command, check=False, capture_output=True, text=True, timeout=_LIMIT_S)
        if completed.returncode:
            raise UsageError(f"the group {CONFIG_GROUP} cannot be made ({completed.stderr.strip()}); run it with sudo")
        try:
            shutil.chown(config, group=CONFIG_GROUP)
            config.chmod(stat.S_IMODE(config.stat().st_mode) | stat.S_IRGRP)
        except (OSError, LookupError) as error:
            raise UsageError(
                f"{config} cannot be opened to the group {CONFIG_GROUP} ({error}); run it with sudo"
            ) from None
    closed: list[Path] = []
    for path in readable:
        # What does not exist is not closed.
        with suppress(OSError):
            mode = path.stat().st_mode
            needed = stat.S_IROTH | stat.S_IXOTH if stat.S_ISDIR(mode) else stat.S_IROTH
            closed += [path] if mode & needed != needed else []
    if closed:
        paths = " ".join(map(str, closed))
        raise UsageError(f"the service, which does not run as root, cannot read {paths}; open it: chmod o+rX {paths}")
