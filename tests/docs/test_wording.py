"""Standard terms in code, tests and documents: replaced names do not come back, and docstrings avoid vague words."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.shared import REPOSITORY

# Names that a standard term replaced; each is unambiguous, so it is refused in code, comments, tests and documents.
REPLACED = {
    "AdmissionQueue": "Scheduler",
    "AnswerForm": "ResponseFormat",
    "AnswersUnderWay": "ActiveAnswers",
    "HEADLESS": "DENY_ALL",
    "HeadForm": "PrefixLayout",
    "HeadStart": "WarmUp",
    "HostedWorker": "WorkerProcess",
    "InferParameters": "GenerationOptions",
    "Inquirer": "FormPrompt",
    "Judgement": "Resolution",
    "JsonScanner": "json_scanner",
    "Latecomers": "report_slow_servers",
    "Misfit": "FormatMismatch",
    "Npu": "LocalModel",
    "OnStream": "StreamApprover",
    "OpenPlace": "UncertainPosition",
    "PythonScanner": "python_scanner",
    "ReplyOptions": "AnswerOptions",
    "ResponseOptions": "ModelOptions",
    "RowsWanted": "OutputSelection",
    "SamplingWish": "SamplingOverrides",
    "SpelledCall": "ParsedCall",
    "TokenedConnection": "PerRequestConnection",
    "Turnstile": "Scheduler",
    "WaitingRuns": "RunQueue",
    "another_way": "transport fallback",
    "first_to_go": "evict_fairly",
    "neutralised": "escape_markers",
    "open_equipment": "open_tools",
    "under_way": "running",
}
# The same for names of classes that are also English words: refused as identifiers only.
REPLACED_CLASSES = {
    "Abilities": "BoardServices",
    "Adjustments": "runtime.extras",
    "Announcement": "ExpectedRun",
    "Asker": "Approver",
    "Bill": "UsageCounter",
    "Briefing": "TurnPreparation",
    "Danger": "Risk",
    "Ear": "MessageListener",
    "Equipment": "ToolEnvironment",
    "Finder": "ToolFinder",
    "Hearing": "MarkupFilter",
    "Hosting": "WorkerProcess",
    "Lane": "Dispatcher",
    "Offerings": "ResourceHub",
    "Outbox": "SendQueue",
    "Ruling": "ApprovalOutcome",
    "Specialist": "AuxiliaryModel",
    "Stock": "ModelSources",
    "Supervision": "Supervisor",
    "Vocabulary": "Tokenizer",
}

VAGUE = re.compile(
    r"\b(whoever|whomever|somebody|nobody|anybody|everybody|whatever|what is|what was|what it|what they|there is"
    r"|there are|such a|as far as|likewise|beside|told|said|kept|heard)\b",
    re.IGNORECASE,
)
VAGUE_WORDS_PER_1000 = 3.0


def sources() -> list[Path]:
    """Every Python file of the product, its tests and its scripts, except this one."""
    folders = ("rkllm_mcp", "mcp_servers", "rkllm_text", "tests", "bench", "scripts")
    found = [path for folder in folders for path in (REPOSITORY / folder).rglob("*.py")]
    return sorted(path for path in found if path != Path(__file__).resolve())


def documents() -> list[Path]:
    """Every document except the changelog, which describes earlier versions."""
    return sorted([*REPOSITORY.glob("docs/*.md"), *(REPOSITORY / name for name in ("README.md", "CONTRIBUTING.md"))])


def test_a_replaced_name_does_not_come_back() -> None:
    pattern = re.compile(rf"\b({'|'.join(REPLACED)})\b")
    found = {
        f"{path.relative_to(REPOSITORY)}: {name}, now {REPLACED[name]}"
        for path in (*sources(), *documents())
        for name in pattern.findall(path.read_text("utf-8"))
    }
    assert found == set()


def test_no_class_has_a_replaced_name() -> None:
    pattern = re.compile(rf"^ *(?:class|from .* import .*?|import .*?)\b({'|'.join(REPLACED_CLASSES)})\b", re.MULTILINE)
    found = {
        f"{path.relative_to(REPOSITORY)}: {name}, now {REPLACED_CLASSES[name]}"
        for path in sources()
        for name in pattern.findall(path.read_text("utf-8"))
    }
    assert found == set()


def docstrings(path: Path) -> Iterator[str]:
    """The docstrings of a file."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield ast.get_docstring(node) or ""


def packages() -> dict[str, list[Path]]:
    """The files of each package; modules at the top of ``rkllm_mcp`` are one package."""
    found: dict[str, list[Path]] = {}
    for path in sources():
        first, *others = path.relative_to(REPOSITORY).parts
        if first in {"rkllm_mcp", "mcp_servers", "rkllm_text"}:
            found.setdefault("/".join([first, *others[:-1][:1]]), []).append(path)
    return found


@pytest.mark.parametrize("package", sorted(packages()))
def test_docstrings_use_few_vague_words(package: str) -> None:
    texts = [text for path in packages()[package] for text in docstrings(path)]
    words = sum(len(text.split()) for text in texts)
    vague = [found for text in texts for found in VAGUE.findall(text)]
    assert len(vague) <= max(1.0, words * VAGUE_WORDS_PER_1000 / 1000), vague
