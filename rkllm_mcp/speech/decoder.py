"""The process that decodes a recording with PyAV: a file on standard input, 16 kHz samples on standard output.

``python -m rkllm_mcp.speech.decoder`` ends with 1 and one line on standard error for a recording that cannot be read.
Limits of memory and processor time are set before the first byte is read.
"""

from __future__ import annotations

import io
import resource
import sys
from itertools import chain
from typing import Any

from rkllm_mcp.speech.audio import DECODE_BYTES, DECODE_CPU_S, MOST_BYTES, MOST_SECONDS, RATE, SAMPLE_BYTES


def main() -> int:
    """Decode standard input; return the exit code."""
    resource.setrlimit(resource.RLIMIT_CPU, (DECODE_CPU_S, DECODE_CPU_S))
    resource.setrlimit(resource.RLIMIT_AS, (DECODE_BYTES, DECODE_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    data = sys.stdin.buffer.read(MOST_BYTES + 1)
    # Loaded after the limits: what it loads counts as well.
    import av as library

    av: Any = library
    av.logging.set_level(av.logging.PANIC)
    bytes_left = (MOST_SECONDS * RATE + 1) * SAMPLE_BYTES
    try:
        with av.open(io.BytesIO(data), mode="r", metadata_errors="replace") as container:
            if not container.streams.audio:
                sys.stderr.write("there is no sound in it\n")
                return 1
            stream = container.streams.audio[0]
            stream.thread_type = "NONE"
            resampler = av.AudioResampler(format="s16", layout="mono", rate=RATE)
            # The last None: what the resampler still holds.
            for frame in chain(container.decode(stream), [None]):
                for part in resampler.resample(frame):
                    samples = part.to_ndarray().tobytes()[:bytes_left]
                    bytes_left -= len(samples)
                    sys.stdout.buffer.write(samples)
                if bytes_left <= 0:
                    break
        return 0
    except (av.FFmpegError, ValueError, OSError) as error:
        reason = getattr(error, "strerror", None) or "no known format"
    except MemoryError:
        reason = "it needs more memory than a recording may take"
    sys.stderr.write(f"{reason}\n")
    return 1


if __name__ == "__main__":
    sys.exit(main())
