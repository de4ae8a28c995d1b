"""Speed of the import: pages and megabytes per second by format, and the cost of the parser process.

Creates documents of every format in memory (PDF requires reportlab), parses each several times in the parser process,
cuts the passages into chunks, and prints medians. ``page_ratio`` is the time of a page relative to SHA-256 of a
megabyte in the same run, for comparing machines.

    python bench/ingest.py [--json] [--pages 60] [--runs 5]
"""

from __future__ import annotations

import argparse
import hashlib
import json
import statistics
import time
from pathlib import Path

import anyio

from mcp_servers.knowledge.importing.chunking import chunk_passages
from mcp_servers.knowledge.importing.documents import Blob
from mcp_servers.knowledge.importing.parser_process import ParserProcess, open_parser
from tests.support.imported import column, docx, paragraph, pdf

LINE = "吾輩は猫である。名前はまだ無い。どこで生れたかとんと見当がつ"
LINES_A_PAGE = 40
Figures = dict[str, float]


def documents(pages: int) -> dict[str, Blob]:
    """The same text in every format; a page is 40 lines."""
    text = [[f"{page}頁{line}行。{LINE}" for line in range(LINES_A_PAGE)] for page in range(pages)]
    whole = "\n\n".join("".join(lines) for lines in text)
    html = "".join(f"<h2>第{page}章</h2><p>{''.join(lines)}</p>" for page, lines in enumerate(text))
    markdown = "".join(f"## 第{page}章\n\n{''.join(lines)}\n\n" for page, lines in enumerate(text))
    word = "".join(paragraph(f"第{page}章", heading=1) + paragraph("".join(lines)) for page, lines in enumerate(text))
    return {
        "pdf": Blob(pdf([column(lines) for lines in text]), "a.pdf"),
        "html": Blob(f"<title>t</title>{html}".encode(), "a.html"),
        "markdown": Blob(markdown.encode(), "a.md"),
        "docx": Blob(docx(word), "a.docx"),
        "text utf-8": Blob(whole.encode(), "a.txt"),
        "text cp932": Blob(whole.encode("cp932"), "a.txt"),
    }


async def one_run(parser: ParserProcess, blob: Blob) -> Figures:
    """Read and cut one document once."""
    start = time.monotonic()
    document = await parser.parse(blob)
    chunks = chunk_passages(document.passages)
    return {"seconds": time.monotonic() - start, "chunks": len(chunks)}


def yardstick_s() -> float:
    """SHA-256 of a megabyte."""
    content, samples = bytes(1_000_000), list[float]()
    for _ in range(9):
        start = time.monotonic()
        hashlib.sha256(content).hexdigest()
        samples.append(time.monotonic() - start)
    return statistics.median(samples)


def resident_mb(pid: int) -> float:
    """Return the peak memory of a running process."""
    lines = Path(f"/proc/{pid}/status").read_text("ascii").splitlines()
    return next((int(line.split()[1]) / 1000 for line in lines if line.startswith("VmHWM:")), 0.0)


async def measure(pages: int, katakana_runs: int) -> dict[str, Figures]:
    """Medians by format, and the process itself."""
    figures: dict[str, Figures] = {}
    async with open_parser() as parser:
        start = time.monotonic()
        await parser.parse(Blob(b"x", "a.txt"))
        started = time.monotonic() - start
        for name, blob in documents(pages).items():
            await one_run(parser, blob)
            samples = [await one_run(parser, blob) for _ in range(katakana_runs)]
            seconds = statistics.median(sample["seconds"] for sample in samples)
            figures[name] = {
                "pages_per_s": round(pages / seconds),
                "mb_per_s": round(len(blob.content) / 1e6 / seconds, 2),
                "chunks": samples[0]["chunks"],
                "page_ratio": round(seconds / pages / yardstick_s(), 2),
            }
        peak = resident_mb(parser.process.pid) if parser.process else 0.0
        figures["process"] = {"start_ms": round(started * 1000), "peak_mb": round(peak)}
    return figures


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--pages", type=int, default=60, help="of every document (60)")
    parser.add_argument("--runs", type=int, default=5, help="counted runs (5)")
    arguments = parser.parse_args()
    figures = anyio.run(measure, arguments.pages, arguments.katakana_runs)
    if arguments.json:
        print(json.dumps(figures))
        return
    for name, values in figures.items():
        print(f"{name:12}" + "".join(f"  {key} {value:g}" for key, value in values.items()))


if __name__ == "__main__":
    main()
