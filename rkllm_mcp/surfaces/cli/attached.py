"""When a command uses the running service of this user instead of its own assistant.

The service must have the same configuration. ``--alone``, ``--no-mcp`` and ``--runtime`` ask for an assistant of the
command's own, and so does a model that is named by its path.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Annotated, TypeAlias

from rkllm_mcp.catalogue import translate
from rkllm_mcp.config.sections import own_web_address
from rkllm_mcp.errors import UsageError
from rkllm_mcp.surfaces.cli.options import flag
from rkllm_mcp.surfaces.running_service import is_served_by_another_user, running_services

if TYPE_CHECKING:
    from rkllm_mcp.config.sections import Config
    from rkllm_mcp.surfaces.invocation import Session
    from rkllm_mcp.surfaces.running_service import RunningService

Alone: TypeAlias = Annotated[bool, flag("Start an assistant of its own, even if a service runs.", "--alone")]


def service_to_use(session: Session, config: Config, *, alone: bool) -> RunningService | None:
    """Return the service that a command uses; None if it starts its own assistant.

    Raises:
        UsageError: a service of another user has the model loaded, and ``--alone`` was not said.
    """
    names_path = session.model is not None and os.sep in session.model
    if alone or session.no_mcp or session.runtime is not None or names_path:
        return None
    services = running_services()
    if (
        service := next((service_found for service_found in services if service_found.is_for(config)), None)
    ) is not None:
        return service
    address = own_web_address(config.service.host, config.service.port)
    is_own = any(service_found.address == address for service_found in services)
    if config.provider.kind == "rkllm" and not is_own and is_served_by_another_user(address):
        raise UsageError(translate("attached.foreign", session.language(config), address=address))
    return None


def attached_lines(session: Session, config: Config, service: RunningService) -> list[str]:
    """Return the status lines of a command that uses a service."""
    language = session.language(config)
    lines = [translate("attached.to", language, address=service.address)]
    if service.has_changed(config):
        lines.append(translate("attached.changed", language, file=config.origin.source))
    return lines
