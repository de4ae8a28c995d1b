"""Frames leave in order and their sender never waits."""

from __future__ import annotations

import socket
from collections.abc import Generator
from contextlib import contextmanager

from rkllm_mcp.runtime.worker import SendQueue


@contextmanager
def connected() -> Generator[tuple[SendQueue, socket.socket], None, None]:
    ours, theirs = socket.socketpair()
    theirs.settimeout(60)
    outbox = SendQueue(ours)
    try:
        yield outbox, theirs
    finally:
        theirs.close()
        ours.shutdown(socket.SHUT_RDWR)
        outbox.close()
        ours.close()


def read(connection: socket.socket, size: int) -> bytes:
    received = bytearray()
    while len(received) < size:
        received += connection.recv(65536)
    return bytes(received)


def test_frames_beyond_the_sockets_buffer_wait_in_order_and_their_sender_does_not() -> None:
    frames = [b"%07d" % number + b"-" * 993 for number in range(3000)]
    with connected() as (outbox, theirs):
        # Nobody reads: 3 MB would block a sender that waits.
        for frame in frames:
            outbox.send(frame)
        assert read(theirs, 3_000_000) == b"".join(frames)
        # The way is free again, also for frames that go straight into the buffer.
        outbox.send(b"last")
        assert read(theirs, 4) == b"last"


def test_a_frame_larger_than_the_buffer_arrives_whole_and_the_next_after_it() -> None:
    with connected() as (outbox, theirs):
        outbox.send(b"a" * 2_000_000)
        outbox.send(b"b")
        assert read(theirs, 2_000_001) == b"a" * 2_000_000 + b"b"


def test_sending_to_a_side_that_is_gone_is_harmless() -> None:
    with connected() as (outbox, theirs):
        theirs.close()
        outbox.send(b"nobody")
        outbox.send(b"nobody" * 1_000_000)


def test_a_side_that_goes_while_frames_wait_is_harmless() -> None:
    with connected() as (outbox, theirs):
        for _ in range(3000):
            outbox.send(b"-" * 1000)
        theirs.close()
        outbox.send(b"nobody")
