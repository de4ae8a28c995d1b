"""What is asked of the model on the NPU after an answer, while nothing else is asked of it.

    answer is saved ─▶ nothing runs for IDLE_S ─▶ one request after the other, each after the conversation's prompt
                                                └▶ then what prompts begin with is saved, if the tools have changed

A request and its answer never become part of the conversation; see ``RkllmModel.aside``. Whatever else is asked of
the NPU ends the request at once.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

import anyio
from anyio.abc import TaskGroup

from rkllm_mcp.app.environment import ModelHost
from rkllm_mcp.errors import RkllmMcpError
from rkllm_mcp.messages import Conversation
from rkllm_mcp.protocols import AskAside

if TYPE_CHECKING:
    from rkllm_mcp.runtime.engine import Engine

logger = logging.getLogger(__name__)

# The pause after an answer, in which its reader may ask the next question, seconds.
IDLE_S = 3.0


def answers_asides(host: ModelHost) -> bool:
    """Return True if a model can be asked outside its conversations.

    A remote service would be paid for it, a script has no answer, and a recurrent model would have to read the whole
    conversation again.
    """
    is_script = host.is_emulated and not host.has_weights
    return host.npu is not None and not is_script and not host.npu.model.is_recurrent


@dataclass(eq=False)
class IdleRequests:
    """Makes the requests of one assistant.

    Args:
        tasks: the assistant's tasks, which end with it.
        is_free: returns True while the assistant makes no answer.
        requests: what is asked, in this order, of models that can be asked besides.
        renew: saves what prompts begin with.
    """

    tasks: TaskGroup
    is_free: Callable[[], bool]
    requests: Sequence[Callable[[Conversation, AskAside], Awaitable[None]]]
    renew: Callable[[], Awaitable[None]]
    _answers: int = field(default=0, init=False)

    def on_answer(self, conversation: Conversation, host: ModelHost) -> None:
        """Note that a question was answered and saved; soon make the requests about its conversation."""
        self._answers += 1
        if host.npu is not None:
            requests = self.requests if answers_asides(host) else ()
            work = [*(partial(request, conversation, host.npu.chat_model.aside) for request in requests), self.renew]
            self.tasks.start_soon(self._make_requests, work, host.npu.engine, self._answers)

    async def _make_requests(self, work: Sequence[Callable[[], Awaitable[None]]], engine: Engine, answers: int) -> None:
        await anyio.sleep(IDLE_S)
        for request in work:
            is_idle = engine.is_ready and engine.is_idle and self.is_free() and not engine.expected_tokens
            if answers != self._answers or not is_idle:
                return
            try:
                await request()
            except RkllmMcpError as error:
                logger.info("a request about a conversation was not answered: %s", error)
            except Exception:
                logger.exception("a request about a conversation failed")
