"""On/off switches of tools and servers: the tool's own switch, else its server's, else on."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from rkllm_mcp.records import Switch


class Switches:
    """Switches of a toolbox; ``keep`` stores changes and must not block or raise."""

    def __init__(
        self, remembered: Iterable[Switch] = (), keep: Callable[[Sequence[Switch]], None] | None = None
    ) -> None:
        self._states: dict[tuple[str, str], bool] = {}
        self._keep = keep
        self.replace(remembered)

    def replace(self, remembered: Iterable[Switch]) -> None:
        """Replace all switches by stored ones, which another process may have changed."""
        self._states = {(switch.server, switch.tool): bool(switch.is_on) for switch in remembered}

    def is_on(self, server: str, tool: str) -> bool:
        """Return True if a tool is enabled, given its wire name."""
        return self._states.get((server, tool), self._states.get((server, ""), True))

    def is_server_on(self, server: str) -> bool:
        """Return True if the server's own switch is on; single tools may differ."""
        return self._states.get((server, ""), True)

    def turn(self, server: str, tool: str, *, is_on: bool) -> None:
        """Enable or disable one tool."""
        # A tool switch equal to the server's is dropped, so that the tool follows later changes of the server's switch.
        state = None if is_on == self.is_server_on(server) else is_on
        self._change([Switch(server, tool, state)])

    def turn_server(self, server: str, *, is_on: bool) -> None:
        """Enable or disable a server with all its present and future tools."""
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
