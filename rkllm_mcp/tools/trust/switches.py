"""Which tools and servers are switched on: what was said of a tool holds, else what was said of its server, else on."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from rkllm_mcp.records import Switch


class Switches:
    """The switches of a toolbox.

    Args:
        remembered: those of earlier runs.
        keep: is given what has changed; must not wait or raise.
    """

    def __init__(
        self, remembered: Iterable[Switch] = (), keep: Callable[[Sequence[Switch]], None] | None = None
    ) -> None:
        self._states: dict[tuple[str, str], bool] = {}
        self._keep = keep
        self.replace(remembered)

    def replace(self, remembered: Iterable[Switch]) -> None:
        """Take over what another process may have changed."""
        self._states = {(switch.server, switch.tool): bool(switch.is_on) for switch in remembered}

    def is_on(self, server: str, tool: str) -> bool:
        """Whether a tool may be used, by the server's own name of it."""
        return self._states.get((server, tool), self._states.get((server, ""), True))

    def is_server_on(self, server: str) -> bool:
        """Whether a server as a whole is switched on; single tools may be switched otherwise."""
        return self._states.get((server, ""), True)

    def turn(self, server: str, tool: str, *, is_on: bool) -> None:
        """Switch one tool."""
        # Where the server says the same no switch of its own is needed, and the server's later ones hold for it.
        state = None if is_on == self.is_server_on(server) else is_on
        self._change([Switch(server, tool, state)])

    def turn_server(self, server: str, *, is_on: bool) -> None:
        """Switch a server and all its tools, also those that it will have later."""
        own = [Switch(name, tool, None) for name, tool in self._states if name == server and tool]
        self._change([*own, Switch(server, "", None if is_on else False)])

    def _change(self, changes: Sequence[Switch]) -> None:
        for change in changes:
            if change.is_on is None:
                self._states.pop((change.server, change.tool), None)
            else:
                self._states[change.server, change.tool] = change.is_on
        if self._keep is not None:
            self._keep(changes)
