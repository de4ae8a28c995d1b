"""A limit of processor time: a busy machine does not matter to it."""

from __future__ import annotations

import signal
from collections.abc import Generator
from contextlib import contextmanager


@contextmanager
def processor_time_limit(seconds: float) -> Generator[None]:
    """Raise KeyboardInterrupt in the main thread when the block has used this much processor time of this process."""
    before = signal.signal(signal.SIGVTALRM, signal.default_int_handler)
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)
