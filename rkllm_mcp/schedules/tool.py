"""``schedule``: a schedule as a tool of the model, which finds it with ``find_tools``; every call asks for approval."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from rkllm_mcp.config.servers import BuiltinServer
from rkllm_mcp.errors import StoreError, UsageError
from rkllm_mcp.messages import ToolSpec
from rkllm_mcp.protocols import NO_CONTEXT, CallContext
from rkllm_mcp.schedules.rules import describe_rule, read_rule
from rkllm_mcp.schedules.runner import schedule_of_sentence, upcoming, zone_here
from rkllm_mcp.text import language_of_text
from rkllm_mcp.toolcalls.results import text_result

if TYPE_CHECKING:
    from rkllm_mcp.store.schedules import Schedules

_SENTENCE = "when and what in one sentence, such as: every weekday at 7:30 tell me the weather"
_NO_TIME = f"There is no time in this sentence. Write {_SENTENCE}."


class ScheduleTool:
    """The tool as a server of this process; a permission for good does not count for it."""

    def __init__(self, schedules: Schedules, tenant: str, timezone: str | None) -> None:
        self.spec = BuiltinServer(name="schedules", tools=(), approve="writes", trusted=True, always_ask=("schedule",))
        self._schedules = schedules
        self._tenant = tenant
        self._timezone = timezone
        schema = {
            "type": "object",
            "properties": {"sentence": {"type": "string", "description": _SENTENCE}},
            "required": ["sentence"],
        }
        description = "Ask something, or remind the user, at a later time or again and again."
        keywords = "schedule remind reminder timer alarm every daily 予定 リマインド 毎朝 毎日 知らせる"
        tool = ToolSpec(
            "schedule",
            description,
            schema,
            self.spec.name,
            "schedule",
            destructive=False,
            on_demand=True,
            keywords=keywords,
        )
        self.tools = (tool,)

    async def call(self, tool: str, arguments: Mapping[str, Any], context: CallContext = NO_CONTEXT) -> dict[str, Any]:
        """Make a schedule; what cannot be one is an error result."""
        del tool
        language = context.language or language_of_text(context.request)
        try:
            now = await self._schedules.now()
            schedule = schedule_of_sentence(str(arguments.get("sentence", "")), zone_here(self._timezone), now)
            if schedule is None:
                return text_result(_NO_TIME, is_error=True)
            stored = await self._schedules.add(self._tenant, schedule)
        except (UsageError, StoreError) as error:
            return text_result(str(error), is_error=True)
        rule, times = describe_rule(read_rule(stored.rule), language), ", ".join(upcoming(stored, now, language))
        return text_result(f"Scheduled: {stored.prompt}; {rule} ({stored.zone}); {times}")
