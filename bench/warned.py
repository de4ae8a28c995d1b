"""What a model answers from passages with and without the line that says that none is likely to answer.

    python -m bench.warned DOCUMENTS QUESTIONS --url http://127.0.0.1:8080/v1 --model NAME --out FILE

``DOCUMENTS`` and ``QUESTIONS`` are as for ``bench.own_words``. Asked are questions whose answer is among the three
passages, and questions that the documents do not answer, in turns; the passages go to the model as the result of a
search that it has called for, in each form of ``FORMS``. Each answer is a line of ``--out``, which a later run goes on
with. They are to be read: whether an answer is right, no pattern tells.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Mapping, Sequence
from itertools import chain, zip_longest
from pathlib import Path
from typing import Any

import anyio
import httpx2

from bench.own_words import Answer, is_right, load
from mcp_servers.knowledge.library import LibrarySettings, open_library
from mcp_servers.knowledge.results import NO_ANSWER_WARNING, search_output
from mcp_servers.knowledge.service import embedder_from
from mcp_servers.knowledge.types import SearchRequest

_RESULTS, _MOST_TOKENS = 3, 90
_SYSTEM = "You are a helpful assistant that runs on a small board. Answer briefly."
# The texts before and after the passages. A text after them costs nothing of the prompt that was read.
FORMS: Mapping[str, tuple[str, str]] = {
    "without": ("", ""),
    "behind": ("", "\n\nIf none of these passages answers the question, say that the documents do not say it."),
    "with": (f"{NO_ANSWER_WARNING}\n\n", ""),
}
_TOOL = {
    "type": "function",
    "function": {
        "name": "search_documents",
        "description": "Search the documents for the passages that answer a question.",
        "parameters": {"type": "object", "properties": {"query": {"type": "string"}}, "required": ["query"]},
    },
}


async def asked(
    documents: Path, questions: Path, embedder: str, shortest: Sequence[int] | None
) -> list[tuple[Answer, str]]:
    """Return questions with their passages as a model reads them, those with an answer and others in turns."""
    table: dict[str, list[dict[str, Any]]] = json.loads(await anyio.Path(questions).read_text("utf-8"))
    groups: dict[str, list[tuple[Answer, str]]] = {"questions": [], "unanswerable": []}
    async with open_library(documents / ".base", LibrarySettings(embedder_from(embedder))) as library:
        bases = await load(library, documents)
        for kind, group in groups.items():
            for question in table[kind]:
                base = bases.get(question["corpus"])
                if base is None:
                    continue
                found = await library.search(SearchRequest(question["question"], base.id, max_results=_RESULTS))
                rights = [is_right(hit, question.get("gold", ())) for hit in found.hits]
                if kind == "unanswerable" or any(rights):
                    text = search_output(found, base.id).passages().removeprefix(f"{NO_ANSWER_WARNING}\n\n")
                    group.append((Answer(question, found.hits, rights), text))
    for group, most in zip(groups.values(), shortest or (), strict=False):
        group[:] = sorted(group, key=lambda each: len(each[1]))[:most]
    return [each for each in chain.from_iterable(zip_longest(*groups.values())) if each]


async def answer(client: httpx2.AsyncClient, model: str, question: str, passages: str) -> str:
    """Return what a model makes of a question and the result of its search."""
    call = {"name": "search_documents", "arguments": json.dumps({"query": question}, ensure_ascii=False)}
    body = {
        "model": model,
        "temperature": 0,
        "max_tokens": _MOST_TOKENS,
        "tools": [_TOOL],
        "tool_choice": "none",
        "messages": [
            {"role": "system", "content": _SYSTEM},
            {"role": "user", "content": question},
            {"role": "assistant", "content": "", "tool_calls": [{"id": "a", "type": "function", "function": call}]},
            {"role": "tool", "tool_call_id": "a", "content": passages},
        ],
    }
    response = await client.post("chat/completions", json=body)
    response.raise_for_status()
    return response.json()["choices"][0]["message"]["content"] or ""


async def _main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("documents", type=Path, help="a folder for each corpus")
    parser.add_argument("questions", type=Path, help="questions.json of tests/data/knowledge")
    parser.add_argument("--url", required=True, help="a service with OpenAI's API")
    parser.add_argument("--model", required=True)
    parser.add_argument("--embedder", default="none")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--shortest", type=int, nargs=2, help="so many of each kind, those with the shortest passages")
    given = parser.parse_args()
    out = anyio.Path(given.out)
    lines: Sequence[str] = (await out.read_text("utf-8")).splitlines() if await out.exists() else ()
    done = {(row["question"], row["form"]) for row in map(json.loads, lines)}
    every = await asked(given.documents, given.questions, given.embedder, given.shortest)
    client = httpx2.AsyncClient(base_url=f"{given.url.rstrip('/')}/", timeout=600)
    async with client:
        for one, passages in every:
            for form, (before, after) in FORMS.items():
                text = one.question["question"]
                if (text, form) not in done:
                    started = time.monotonic()
                    said = await answer(client, given.model, text, before + passages + after)
                    row = {
                        "question": text,
                        "form": form,
                        "corpus": one.question["corpus"],
                        "answerable": any(one.rights),
                        "right_at": [at for at, right in enumerate(one.rights, 1) if right],
                        "warned": one.is_warned,
                        "figures": [round(number, 4) for number in one.hits[0].figures] if one.hits else [],
                        "score": round(one.hits[0].score, 4) if one.hits else 0.0,
                        "answer": said,
                        "passages": passages,
                        "seconds": round(time.monotonic() - started, 1),
                    }
                    async with await anyio.open_file(out, "a", encoding="utf-8") as file:
                        await file.write(f"{json.dumps(row, ensure_ascii=False)}\n")


if __name__ == "__main__":
    anyio.run(_main)
