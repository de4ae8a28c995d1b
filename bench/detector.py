"""What the detector costs for each token: flat from 200 to 20,000 tokens, and against parsing again for every token.

    python bench/detector.py [--json] [--repeat N]

Six streams, one chunk for each token of about four characters: ``prose`` (no call), ``code`` (source text full of
braces, brackets, quotes and tags, no call), ``many`` (a call about every fifty tokens), ``several`` (five calls, two of
them with long text), ``onelong`` (one call whose argument is nearly the whole answer) and ``thinking`` (prose inside
``<think>``). Each is run with the forms of one family (``hermes``), with those of a family without markers, where a
brace may be a call anywhere (``llama``), and with ``every`` syntax there is.

Every figure is the least of several repeats of processor time, divided by the number of tokens; ``first`` and ``last``
are the same for the first and the last tenth of the stream, where a method that looks back is fastest and slowest, and
``last/first`` compares them. The baseline reads the whole answer again for every token, as a regular expression over
the text so far does; it is run on sizes it can finish.

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
from rkllm_mcp.toolcalls.formats import SYNTAXES

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


_CODE = (
    'for (int i = 0; i < n; i++) { a[i] = f(b[i], {x: [1, 2]}); if (a[i] > 3) { puts("{}"); } }\n'
    '<ul><li>{{ item }}</li></ul> d = {"k": [{"n": 1}, {\'m\': (2, 3)}]}  # `x` ~ y\n'
)

METHODS: dict[str, list[str]] = {
    "hermes": ["hermes", "project_json", "project_xml"],
    "llama": ["llama3_json", "pythonic_list"],
    "every": list(SYNTAXES),
}
LLAMA = "llama"


@dataclass(frozen=True)
class Row:
    """One measurement; times in microseconds a token."""

    method: str
    stream: str
    size: int
    tokens: int
    us_per_token: float
    us_per_token_first_tenth: float
    us_per_token_last_tenth: float


def _repeated(text: str) -> Callable[[int, str], str]:
    return lambda characters, _method: (text * (characters // len(text) + 1))[:characters]


_prose = _repeated(_PROSE)


def _call(characters: int, method: str) -> str:
    arguments = {"path": "notes/today.txt", "content": _prose(characters, "") + ' {"quoted": [1, 2]} </tool_call>'}
    body = json.dumps({"name": "write_file", "arguments": arguments}, ensure_ascii=False)
    return f"<|python_tag|>{body}\n" if method == LLAMA else f"<tool_call>\n{body}\n</tool_call>\n"


def _several(characters: int, method: str) -> str:
    share = characters // 8
    lengths = (20, share, 20, share, 20)
    return "".join(_prose(share, "") + _call(length, method) for length in lengths)


def _many(characters: int, method: str) -> str:
    return (_prose(40, "") + _call(60, method)) * (characters // 250)


STREAMS: dict[str, tuple[Callable[[int, str], str], bool]] = {
    "prose": (_prose, False),
    "code": (_repeated(_CODE), False),
    "many": (_many, True),
    "several": (_several, True),
    "onelong": (_call, True),
    "thinking": (lambda characters, _: f"<think>\n{_prose(characters, '')}</think>\n\nDone.", False),
}


def _tokens(text: str) -> list[str]:
    return re.findall(r"\s?[^\W_]{1,5}|\s|[^\s\w]|\w", text)


def _stream(name: str, tokens: int, method: str) -> tuple[list[str], int]:
    """The tokens, and how many calls there are in them."""
    make, _ = STREAMS[name]
    characters = tokens * 4
    for _ in range(4):  # Calls and code have markup of their own, so the length is approached.
        characters = round(characters * tokens / max(1, len(_tokens(make(characters, method)))))
    text = make(characters, method)
    return _tokens(text), text.count('{"name": "write_file"')


def _run_detector(tokens: Iterable[str], method: str) -> Iterable[int]:
    """Feed the tokens; yields after each, with the number of calls found by it."""
    detector = Detector(_TOOLS, METHODS[method], thinking="auto")
    for token in tokens:
        events = detector.feed(token)
        yield sum(isinstance(event, ToolCallDetected) for event in events)
    yield sum(isinstance(event, ToolCallDetected) for event in detector.finish())


# As the runtime's own demo client finds calls; it also cuts at a closer inside an argument.
_BLOCK = re.compile(r"<tool_call>\s*(\{.*?\})\s*</tool_call>", re.DOTALL)


def _run_baseline(tokens: Iterable[str], _method: str) -> Iterable[int]:
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


Run = Callable[[Iterable[str], str], Iterable[int]]


def _measure(method: str, run: Run, stream: str, size: int, repeat: int) -> Row:
    tokens, wanted = _stream(stream, size, method)
    tenth = len(tokens) // 10
    whole = first = last = float("inf")
    for _ in range(repeat):
        calls, marks = 0, [0.0, 0.0]
        begin = process_time()
        for index, found in enumerate(run(tokens, method)):
            calls += found
            if index == tenth:
                marks[0] = process_time()
            elif index == len(tokens) - tenth:
                marks[1] = process_time()
        end = process_time()
        if method in METHODS and calls != wanted:
            raise SystemExit(f"{stream}, {method}: {calls} calls instead of {wanted}; the figures would mean nothing")
        whole, first, last = min(whole, end - begin), min(first, marks[0] - begin), min(last, end - marks[1])
    return Row(
        method, stream, size, len(tokens), *(1e6 * part for part in (whole / len(tokens), first / tenth, last / tenth))
    )


def measure(repeat: int) -> list[Row]:
    """Every row of the report."""
    rows = [
        _measure(method, _run_detector, stream, size, repeat)
        for method in METHODS
        for stream in STREAMS
        for size in SIZES
    ]
    rows += [
        _measure("baseline", _run_baseline, stream, size, 1)
        for stream in ("prose", "several", "onelong")
        for size in BASELINE_SIZES
    ]
    return rows


def _summary(rows: list[Row]) -> dict[str, float]:
    """The ratios that travel: the last tenth against the first, and the baseline against the detector."""
    ours = {(row.stream, row.size): row.us_per_token for row in rows if row.method == "hermes"}
    flat = {
        f"last / first tenth {row.method} {row.stream}": row.us_per_token_last_tenth / row.us_per_token_first_tenth
        for row in rows
        if row.method in METHODS and row.size == SIZES[-1]
    }
    against = {
        f"baseline / detector {row.stream} {row.size}": row.us_per_token / ours[row.stream, row.size]
        for row in rows
        if row.method == "baseline"
    }
    return flat | against


def main() -> None:
    """Print the report."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--json", action="store_true", help="one JSON object instead of a table")
    parser.add_argument("--repeat", type=int, default=5, metavar="N", help="repeats of each measurement (default 5)")
    options = parser.parse_args()
    rows = measure(options.repeat)
    ratios = _summary(rows)
    worst = max(row.us_per_token for row in rows if row.method in METHODS)
    if options.json:
        print(json.dumps({"rows": [asdict(row) for row in rows], "ratios": ratios, "budget_us": BUDGET_US}))
        return
    columns = f"{'µs/token':>10}{'first tenth':>13}{'last tenth':>12}{'last/first':>12}"
    print(f"{'method':10}{'stream':10}{'tokens':>8}{columns}")
    for row in rows:
        first, last = row.us_per_token_first_tenth, row.us_per_token_last_tenth
        print(
            f"{row.method:10}{row.stream:10}{row.tokens:8}{row.us_per_token:10.2f}{first:13.2f}{last:12.2f}"
            f"{last / first:12.2f}"
        )
    for name, ratio in ratios.items():
        if name.startswith("baseline"):
            print(f"{name:38}{ratio:8.2f} x")
    print(f"{'worst of the detector':38}{worst:8.2f} µs/token (aim {BUDGET_US})")


if __name__ == "__main__":
    main()
