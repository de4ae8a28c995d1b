"""Which tools are on."""

from __future__ import annotations

from collections.abc import Sequence

from rkllm_mcp.records import Switch
from rkllm_mcp.tools.approvals import Switches


def test_switching_a_server_forgets_the_switches_of_its_tools_but_those_turned_since() -> None:
    switches = Switches()
    switches.turn("s", "b", is_on=False)
    switches.turn("s", is_on=False)
    switches.turn("s", "a", is_on=True)
    assert [switches.is_on("s", tool) for tool in "ab"] == [True, False]
    assert switches.is_on("other", "b")
    switches.turn("s", is_on=True)
    assert [switches.is_on("s", tool) for tool in "ab"] == [True, True]


def test_changes_are_passed_to_the_store_and_restore_the_same_state() -> None:
    kept: dict[tuple[str, str], Switch] = {}

    def keep(changes: Sequence[Switch]) -> None:
        for change in changes:
            kept[change.server, change.tool] = change

    switches = Switches(keep=keep)
    switches.turn("s", "a", is_on=False)
    switches.turn("s", "b", is_on=True)
    switches.turn("r", is_on=False)
    switches.turn("r", "x", is_on=True)
    switches.turn("r", "y", is_on=False)
    left = [switch for switch in kept.values() if switch.is_on is not None]
    assert left == [Switch("s", "a", False), Switch("r", "", False), Switch("r", "x", True)]
    again = Switches(left)
    for server, tool in (("s", "a"), ("s", "b"), ("r", "x"), ("r", "y"), ("r", "z")):
        assert again.is_on(server, tool) == switches.is_on(server, tool)
