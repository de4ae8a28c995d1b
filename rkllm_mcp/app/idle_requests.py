"""What is asked of the model on the NPU after an answer, while nothing else is asked of it.

    answer is saved ─▶ nothing runs for IDLE_S ─▶ one request after the other, each after the conversation's prompt

A request and its answer never become part of the conversation; see ``RkllmModel.aside``. Whatever else is asked of
the NPU ends the request at once.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence

import anyio
from anyio.abc import TaskGroup

from rkllm_mcp.app.environment import LocalModel, ModelHost
from rkllm_mcp.errors import RkllmMcpError
from rkllm_mcp.messages import Conversation
from rkllm_mcp.protocols import AsideModel

logger = logging.getLogger(__name__)

# The pause after an answer, in which its reader may ask the next question, seconds.
IDLE_S = 3.0


def answers_asides(host: ModelHost) -> bool:
    """Return True if a model can be asked besides its conversations.

    A remote service would be paid for it, a script has no answer, and a recurrent model would have to read the whole
    conversation again.
    """
    return host.npu is not None and not host.answers_from_script and not host.npu.model.is_recurrent


class IdleRequests:
    """Makes the requests of one assistant.

    Args:
        tasks: the assistant's tasks, which end with it.
        is_free: returns True while the assistant makes no answer.
        requests: what is asked, in this order.
    """

    def __init__(
        self,
        tasks: TaskGroup,
        is_free: Callable[[], bool],
        requests: Sequence[Callable[[Conversation, AsideModel], Awaitable[None]]],
    ) -> None:
        self._tasks = tasks
        self._is_free = is_free
        self._requests = requests
        self._answers = 0

    def on_answer(self, conversation: Conversation, host: ModelHost) -> None:
        """Note that a question was answered and saved; soon make the requests about its conversation."""
        self._answers += 1
        if host.npu is not None and answers_asides(host):
            self._tasks.start_soon(self._make, conversation, host.npu, self._answers)

    async def _make(self, conversation: Conversation, npu: LocalModel, answers: int) -> None:
        await anyio.sleep(IDLE_S)
        engine = npu.engine
        for request in self._requests:
            is_idle = engine.is_ready and engine.is_idle and self._is_free() and not engine.expected_tokens
            if answers != self._answers or not is_idle:
                return
            try:
                await request(conversation, npu.chat_model)
            except RkllmMcpError as error:
                logger.info("a request about a conversation was not answered: %s", error)
            except Exception:
                logger.exception("a request about a conversation failed")
