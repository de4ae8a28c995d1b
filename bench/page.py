"""The page on a slow phone: how long its tasks take while an answer streams, and how soon a key shows.

Opens the page in Chromium at 360 × 740 pixels with its processor slowed down, has long answers streamed into one
conversation and types meanwhile. The tasks of the page's main thread are taken from a trace: wall time, and the time on
the processor, which other programs on the machine do not lengthen.

    python -m bench.page [--json] [--slower 6] [--scaled] [--rate 30] [--answers 3]

Chromium slows a processor down by the clock, so that what others run on the machine counts as often as well. With
``--scaled`` it runs at full speed, and its times are multiplied instead.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from typing import Any, cast

from tests.support.browser import PHONE, Visit, chromium, visiting
from tests.support.page_service import USAGE, Json, PageService, running, text

PROSE = """## 見出し {part}

段落です。**強調**と `code` と [リンク](https://example.com) があり、そのあとに普通の文が続きます。

- one of several points, with some words behind it
- another one
  - nested below the other

```python
def area(width: float, height: float) -> float:
    \"\"\"Return the area of a rectangle.\"\"\"
    return width * height  # {part}
```

| 都市 | 気温 | 天気 |
|---|---|---|
| 東京 | 21 | 晴れ |
| 大阪 | 19 | 曇り |

The sum is \\(\\sum_{{i=1}}^{{n}} x_i\\).

"""
# Shorter ones are not worth a row.
TASK_MS = 8.0
_TYPED = """() => {
  window.delays = [];
  new PerformanceObserver((list) => {
    for (const entry of list.getEntries()) if (entry.name === "keydown") window.delays.push(entry.duration);
  }).observe({ type: "event", durationThreshold: 16 });
}"""

# The same work each time: what it takes tells how fast the machine was just then.
_FIXED = """() => {
  const begun = performance.now();
  let text = "";
  for (let i = 0; i < 400000; i++) text = (text + String.fromCharCode(97 + (i % 26))).slice(-64);
  return performance.now() - begun;
}"""


def pieces(parts: int) -> list[Json]:
    """An answer in pieces of about a token."""
    whole = "".join(PROSE.format(part=part) for part in range(parts))
    return [text(whole[start : start + 4]) for start in range(0, len(whole), 4)]


def tasks(trace: bytes, last_s: float) -> tuple[list[float], list[float]]:
    """The wall and processor times of the main thread's tasks in the last seconds of a trace, ms."""
    events = cast("list[Any]", json.loads(trace)["traceEvents"])
    main = {
        (event["pid"], event["tid"])
        for event in events
        if event["name"] == "thread_name" and event["args"]["name"] == "CrRendererMain"
    }
    found = [
        event
        for event in events
        if (event["pid"], event["tid"]) in main
        and "dur" in event
        and event["name"] in {"RunTask", "ThreadControllerImpl::RunTask"}
    ]
    end = max(event["ts"] for event in found)
    found = [event for event in found if event["ts"] > end - last_s * 1e6]
    return [event["dur"] / 1000 for event in found], [event.get("tdur", event["dur"]) / 1000 for event in found]


def measure(visit: Visit, answers: int, factor: float = 1) -> Json:
    """Ask, type during the answers, and return the figures; some for each answer, tasks multiplied by the factor.

    The first answer loads modules and fonts, which the later ones find.
    """
    page = visit.page
    page.evaluate(_TYPED)
    start = time.monotonic()
    browser = page.context.browser
    assert browser is not None
    walls: list[list[float]] = []
    spent: list[list[float]] = []
    fixed: list[float] = []
    for _ in range(answers):
        fixed.append(page.evaluate(_FIXED))
        browser.start_tracing(page=page, categories=["toplevel", "devtools.timeline"])
        # The beginning of the trace is its own task.
        page.wait_for_timeout(1000)
        begun = page.evaluate("performance.now()")
        visit.ask("long")
        while page.is_visible("#stop"):
            page.focus("#question")
            page.keyboard.press("a")
            page.wait_for_timeout(400)
        page.fill("#question", "")
        page.wait_for_timeout(1000)
        wall, processor = tasks(browser.stop_tracing(), (page.evaluate("performance.now()") - begun) / 1000)
        walls.append([factor * each for each in wall])
        spent.append([factor * each for each in processor])
    delays = cast("list[float]", page.evaluate("window.delays"))
    return {
        "seconds": time.monotonic() - start,
        "tasks over 8 ms": [sum(each > TASK_MS for each in answer) for answer in spent],
        "tasks over 50 ms of processor time": [sum(each > 50 for each in answer) for answer in spent],
        "longest tasks, processor, ms": [[round(each) for each in sorted(answer)[-3:]] for answer in spent],
        "longest tasks, wall, ms": [[round(each) for each in sorted(answer)[-3:]] for answer in walls],
        "keys that took over 16 ms": len(delays),
        "slowest key, ms": max(delays, default=0),
        "nodes": page.evaluate("document.querySelectorAll('#thread *').length"),
        "fixed work before each answer, ms": [round(each) for each in fixed],
        "load": os.getloadavg()[0],
    }


def main() -> None:
    """Measure, and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--slower", type=float, default=6.0, help="how much slower the processor is")
    parser.add_argument("--scaled", action="store_true", help="multiply its times instead")
    parser.add_argument("--rate", type=float, default=30.0, help="pieces per second")
    parser.add_argument("--answers", type=int, default=3)
    options = parser.parse_args()
    service = PageService({"long": [*pieces(4), USAGE]}, pace_s=1 / options.rate)
    with chromium() as browser, running(service), visiting(browser, service.url, PHONE) as visit:
        session = cast("Any", visit.page.context.new_cdp_session(visit.page))
        session.send("Emulation.setCPUThrottlingRate", {"rate": 1 if options.scaled else options.slower})
        figures = measure(visit, options.answers, options.slower if options.scaled else 1)
    if options.json:
        print(json.dumps(figures, ensure_ascii=False))
    else:
        for name, value in figures.items():
            print(f"{name:38} {value}")


if __name__ == "__main__":
    main()
