"""What the detector costs for each token: flat from 200 to 20,000 tokens, and against parsing again for every token.

    python bench/detector.py [--json] [--repeat N]

Four streams, one chunk for each token of about four characters: ``prose`` (no call), ``several`` (five calls, two of
them with long text), ``onelong`` (one call whose argument is nearly the whole answer) and ``thinking`` (prose inside
``<think>``). Every figure is the least of several repeats of processor time, divided by the number of tokens; ``last
tenth`` is the same for the last tenth of the stream, where a method that looks back is slowest. ``growth`` is the
largest size against the smallest. The baseline reads the whole answer again for every token, as a regular expression
over the text so far does; it is run on sizes it can finish.

Figures of one run compare with each other only: the ratios travel from machine to machine, the microseconds do not.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from time import process_time

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from rkllm_mcp.events import ToolCallDetected
from rkllm_mcp.messages import ToolSpec
from rkllm_mcp.toolcalls.detector import Detector

SIZES = (200, 2_000, 20_000)
# Reading everything again costs minutes at 20,000 tokens.
BASELINE_SIZES = (200, 2_000)
BUDGET_US = 5.0

_PROSE = (
    "The weather in Kyoto stays mild; a light breeze (3 m/s) comes from the east, and i < n holds. 明日は晴れです。\n"
)
_TOOLS = [
    ToolSpec(
        "write_file",
        "",
        {
            "type": "object",
            "properties": {"path": {"type": "string"}, "content": {"type": "string"}},
            "required": ["path", "content"],
        },
    )
]


@dataclass(frozen=True)
class Row:
    """One measurement; times in microseconds a token."""

    method: str
    stream: str
    size: int
    tokens: int
    us_per_token: float
    us_per_token_last_tenth: float


def _prose(characters: int) -> str:
    return (_PROSE * (characters // len(_PROSE) + 1))[:characters]


def _call(characters: int) -> str:
    arguments = {"path": "notes/today.txt", "content": _prose(characters) + ' {"quoted": [1, 2]} </tool_call>'}
    body = json.dumps({"name": "write_file", "arguments": arguments}, ensure_ascii=False)
    return f"<tool_call>\n{body}\n</tool_call>\n"


def _several(characters: int) -> str:
    share = characters // 8
    lengths = (20, share, 20, share, 20)
    return "".join(_prose(share) + _call(length) for length in lengths)


STREAMS: dict[str, tuple[Callable[[int], str], int]] = {
    "prose": (_prose, 0),
    "several": (_several, 5),
    "onelong": (_call, 1),
    "thinking": (lambda characters: f"<think>\n{_prose(characters)}</think>\n\nDone.", 0),
}


def _tokens(text: str) -> list[str]:
    return re.findall(r"\s?[^\W_]{1,5}|\s|[^\s\w]|\w", text)


def _stream(name: str, tokens: int) -> list[str]:
    make, _ = STREAMS[name]
    characters = tokens * 4
    for _ in range(4):  # Calls have markup of their own, so the length is approached.
        characters = max(0, characters + round((tokens - len(_tokens(make(characters)))) * 2.5))
    return _tokens(make(characters))


def _run_detector(tokens: Iterable[str]) -> Iterable[int]:
    """Feed the tokens; yields after each, with the number of calls found by it."""
    detector = Detector(_TOOLS, thinking="auto")
    for token in tokens:
        yield sum(isinstance(event, ToolCallDetected) for event in detector.feed(token))
    yield sum(isinstance(event, ToolCallDetected) for event in detector.finish())


# As the runtime's own demo client finds calls; it also cuts at a closer inside an argument.
_BLOCK = re.compile(r"<tool_call>\s*(\{.*?\})\s*</tool_call>", re.DOTALL)


def _run_baseline(tokens: Iterable[str]) -> Iterable[int]:
    """Read everything so far again for each token, and tell what is new."""
    text, known = "", 0
    for token in tokens:
        text += token
        found = sum(_is_call(block.group(1)) for block in _BLOCK.finditer(text))
        yield found - known
        known = found


def _is_call(body: str) -> bool:
    try:
        return "name" in json.loads(body)
    except ValueError:
        return False


def _measure(method: str, run: Callable[[Iterable[str]], Iterable[int]], stream: str, size: int, repeat: int) -> Row:
    tokens = _stream(stream, size)
    last = len(tokens) - len(tokens) // 10
    whole = tail = float("inf")
    for _ in range(repeat):
        calls, at_last = 0, 0.0
        begin = process_time()
        for index, found in enumerate(run(tokens)):
            calls += found
            if index == last:
                at_last = process_time()
        end = process_time()
        wanted = STREAMS[stream][1]
        if method == "detector" and calls != wanted:
            raise SystemExit(f"{stream}: {calls} calls instead of {wanted}; the figures would mean nothing")
        whole, tail = min(whole, end - begin), min(tail, end - at_last)
    return Row(method, stream, size, len(tokens), whole / len(tokens) * 1e6, tail / (len(tokens) - last) * 1e6)


def measure(repeat: int) -> list[Row]:
    """Every row of the report."""
    rows = [_measure("detector", _run_detector, stream, size, repeat) for stream in STREAMS for size in SIZES]
    rows += [
        _measure("baseline", _run_baseline, stream, size, 1)
        for stream in ("prose", "several", "onelong")
        for size in BASELINE_SIZES
    ]
    return rows


def _summary(rows: list[Row]) -> dict[str, float]:
    """The ratios that travel: growth with length, and the baseline against the detector."""
    ours = {(row.stream, row.size): row.us_per_token for row in rows if row.method == "detector"}
    growth = {f"growth {stream}": ours[stream, SIZES[-1]] / ours[stream, SIZES[0]] for stream in STREAMS}
    against = {
        f"baseline / detector {row.stream} {row.size}": row.us_per_token / ours[row.stream, row.size]
        for row in rows
        if row.method == "baseline"
    }
    return growth | against


def main() -> None:
    """Print the report."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--json", action="store_true", help="one JSON object instead of a table")
    parser.add_argument("--repeat", type=int, default=5, metavar="N", help="repeats of each measurement (default 5)")
    options = parser.parse_args()
    rows = measure(options.repeat)
    ratios = _summary(rows)
    worst = max(row.us_per_token for row in rows if row.method == "detector")
    if options.json:
        print(json.dumps({"rows": [asdict(row) for row in rows], "ratios": ratios, "budget_us": BUDGET_US}))
        return
    print(f"{'method':10}{'stream':10}{'tokens':>8}{'µs/token':>10}{'last tenth':>12}")
    for row in rows:
        print(
            f"{row.method:10}{row.stream:10}{row.tokens:8}{row.us_per_token:10.2f}{row.us_per_token_last_tenth:12.2f}"
        )
    for name, ratio in ratios.items():
        print(f"{name:38}{ratio:8.2f} x")
    print(f"{'worst of the detector':38}{worst:8.2f} µs/token (aim {BUDGET_US})")


if __name__ == "__main__":
    main()
