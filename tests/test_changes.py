"""The rows of CONTRIBUTING.md are complete: changes made by the rows alone pass the tests that the rows name.

They are made in one copy of the tree, each in the files of its row; then the copy's generated parts are written again,
each change is used, and the named tests run there, with those that compare lists with the tree.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.shared import REPOSITORY

Edit = Callable[[str], str]
# Run after the named tests of every row: what compares the tree with its tables.
LISTS = (
    "tests/test_architecture.py",
    "tests/test_catalogue.py",
    "tests/test_snapshots.py",
    "tests/docs/test_reference.py",
)
# What a change of a row may break in a folder that the row names; the whole folder takes minutes.
OF_FOLDERS: Mapping[str, Sequence[str]] = {
    "tests/prompt": ("tests/prompt/test_families.py", "tests/prompt/test_injected_control_tokens.py"),
    "tests/models": ("tests/models/test_catalogue.py",),
    "tests/toolcalls": (
        "tests/toolcalls/test_formats.py",
        "tests/toolcalls/test_syntax.py",
        "tests/toolcalls/test_explain.py",
        "tests/toolcalls/test_constraint.py",
    ),
    "tests/completions": ("tests/completions/test_fields.py",),
    "tests/surfaces/http": ("tests/surfaces/http/test_chat_completions.py",),
    "tests/surfaces/cli": ("tests/surfaces/cli/test_help.py",),
    "tests/mcp_servers/knowledge/importing": ("tests/mcp_servers/knowledge/importing/test_parse.py",),
    "tests/runtime": ("tests/runtime/test_abi.py", "tests/runtime/test_library.py", "tests/models/test_runtimes.py"),
    "tests/surfaces/chat": ("tests/surfaces/chat/test_render.py",),
    "tests/surfaces/web": ("tests/surfaces/web/test_scripts.py",),
    "tests/diagnostics": ("tests/diagnostics/test_doctor.py",),
    "tests/config": ("tests/config/test_loading.py",),
}
PATIENCE_S = 560


@dataclass(frozen=True)
class Change:
    """A change of a row: its edits by file, and a program that uses it in the changed tree."""

    edits: Mapping[str, Edit]
    use: str


def put(before: str, new: str) -> Edit:
    """Insert text before the only place of another one."""

    def edit(text: str) -> str:
        assert text.count(before) == 1, f"{text.count(before)} times {before!r}"
        return text.replace(before, f"{new}{before}")

    return edit


def put_all(*pairs: tuple[str, str]) -> Edit:
    """Insert several texts, each before the only place of another one."""

    def edit(text: str) -> str:
        for before, new in pairs:
            text = put(before, new)(text)
        return text

    return edit


def exchange(old: str, changed: str) -> Edit:
    """Write a text in each place of another one."""

    def edit(text: str) -> str:
        assert old in text, f"no {old!r}"
        return text.replace(old, changed)

    return edit


def new(text: str) -> Edit:
    """Write a file that is not there."""
    return lambda _: text


CHANGES: Mapping[str, Change] = {
    "the template of a model family, with a model": Change(
        {
            "rkllm_mcp/prompt/templates/heron.toml": new(
                'base = "chatml"\n\n[about]\nfor = "Heron"\nturns = "ChatML"\ntools = "system turn, in our words"\n'
                'calls = "`[TOOL_CALL]` JSON"\nresults = "user turn"\nthinking = "none"\n'
            ),
            "tests/prompt/templates/heron.jinja": new(
                (REPOSITORY / "tests/prompt/templates/chatml.jinja").read_text("utf-8")
            ),
            "models/heron-1b/model.toml": new(
                'name = "heron-1b"\ndescription = "Heron 1B: answers in English"\n'
                'template = "heron"\nthinking = "off"\n'
                "skip_special_token = false\n\n[sampling]\ntemperature = 0.2\ntop_k = 20\ntop_p = 0.9\n"
                'repeat_penalty = 1.0\n\n[source]\ntokenizer_repository = "heron/heron-1b"\nplatform = "RK3588"\n'
            ),
            "rkllm_mcp/catalogue.ja.json": put(
                '    "Gemma 3 1B: many languages;', '    "Heron 1B: answers in English": "Heron 1B。英語で答えます",\n'
            ),
        },
        "from rkllm_mcp.prompt.families import TEMPLATES\n"
        "assert TEMPLATES['heron'] == TEMPLATES['chatml']\n"
        "assert '| `heron` | Heron |' in open('docs/models.md', encoding='utf-8').read()",
    ),
    "a call format": Change(
        {
            "rkllm_mcp/toolcalls/formats.py": put_all(
                (
                    "\n_SYNTAXES = (",
                    (
                        "\nARROW = CallFormat(\n"
                        '    name="arrow",\n    openers=("[HERON]call:",),\n'
                        '    confirm=followed_by(Shape(SPACE, r"[a-z]", r"[a-z_]{0,40}", SPACE, r"\\{")),\n'
                        "    scanner=NamedJsonScanner,\n    read=read_named_json,\n"
                        '    example="[HERON]call:TOOL{…}[/HERON]",\n    closers=("[/HERON]",),\n)\n'
                    ),
                ),
                ('    Syntax("project_json",', '    Syntax("arrow", "Heron", (ARROW,)),\n'),
            ),
            "tests/toolcalls/samples.py": put(
                '    "project_json": (',
                '    "arrow": ("arrow", lambda body: f"[HERON]call:save_note{_object(body)}[/HERON]"),\n',
            ),
        },
        "shown = '| `arrow` | Heron | `[HERON]call:TOOL{…}[/HERON]` |'\n"
        "assert shown in open('docs/toolcalls.md', encoding='utf-8').read()",
    ),
    "a field of an API": Change(
        {
            "rkllm_mcp/completions/chat_completions.py": put(
                '        *("prompt_cache_retention", "safety_identifier",', '        "heron",\n'
            )
        },
        "assert '`heron`' in open('docs/openai.md', encoding='utf-8').read()",
    ),
    "a slash command of the chat": Change(
        {
            "rkllm_mcp/surfaces/chat/commands.py": put_all(
                (
                    "\n\nasync def _quit(",
                    (
                        "\n\nasync def _heron(state: ChatState, _argument: str) -> None:\n"
                        '    state.terminal.answer("heron\\n")\n'
                    ),
                ),
                ('    "/quit": _quit,', '    "/heron": _heron,\n'),
            ),
            "rkllm_mcp/catalogue.en.json": put('    "/quit": [', '    "/heron": ["/heron", "show a heron"],\n'),
            "rkllm_mcp/catalogue.ja.json": put('    "/quit": [', '    "/heron": ["/heron", "サギを表示する"],\n'),
        },
        "from rkllm_mcp.surfaces.chat.commands import COMMANDS\nassert '/heron' in COMMANDS",
    ),
    "a document format of the knowledge server": Change(
        {
            "mcp_servers/knowledge/importing/formats.json": put(
                '    {"media_type": "text/markdown"',
                '    {"media_type": "text/x-heron", "reader": "heron", "endings": ["heron"], "types": []},\n',
            ),
            "mcp_servers/knowledge/importing/parse.py": put(
                '    "markdown": partial(_read_text, ',
                '    "heron": partial(_read_text, lambda text, _, __: ("Heron", read_plain(text))),\n',
            ),
        },
        "from mcp_servers.knowledge.importing.parse import format_of\n"
        "from mcp_servers.knowledge.importing.documents import Blob\n"
        "assert format_of(Blob(b'text', 'a.heron')).reader == 'heron'",
    ),
    "a flag of the command line": Change(
        {
            "rkllm_mcp/surfaces/cli/tune.py": put(
                '    yes: Annotated[bool, flag("Set',
                '    heron: Annotated[bool, flag("Show a heron.", "--heron")] = False,\n',
            ),
            "rkllm_mcp/phrases.ja.json": put(
                '"Set them without asking."', '"Show a heron.": "サギを表示します。",\n  '
            ),
        },
        "assert '`--heron`' in open('docs/cli.md', encoding='utf-8').read()",
    ),
    "a risk rule": Change(
        {"rkllm_mcp/tools/risk_words.txt": put("del remove rm ", "pluck ")},
        "from rkllm_mcp.tools.risk import risk_of_name as of\nassert of('pluck_heron') == of('delete_heron')",
    ),
    "a check of `doctor`": Change(
        {
            "rkllm_mcp/diagnostics/checks.py": put(
                "def check_gomp(machine",
                "def check_heron() -> Iterator[CheckResult]:\n"
                '    """Report a heron."""\n'
                '    yield CheckResult("heron", "ok", "on one leg")\n\n\n',
            ),
            "rkllm_mcp/diagnostics/doctor.py": put(
                '        ("open files", checks.check_open_files', '        ("heron", checks.check_heron()),\n'
            ),
            "tests/diagnostics/test_doctor.py": put(
                '        ("open files", "ok", "at most 1024', '        ("heron", "ok", "on one leg"),\n'
            ),
        },
        (
            "from rkllm_mcp.diagnostics.checks import check_heron\n"
            "assert [each.status for each in check_heron()] == ['ok']"
        ),
    ),
    "an event": Change(
        {
            "rkllm_mcp/events.py": put_all(
                (
                    "@dataclass(frozen=True)\nclass Usage:",
                    (
                        "@dataclass(frozen=True)\nclass HeronSeen:\n"
                        '    """A heron was seen."""\n\n    legs: int\n'
                        '    kind: ClassVar[Literal["heron"]] = "heron"\n\n\n'
                    ),
                ),
                ("    | Usage\n    | End\n", "    | HeronSeen\n"),
            ),
            "rkllm_mcp/surfaces/chat/render.py": put_all(
                ("    MemoriesUsed,\n    Prefill,", "    HeronSeen,\n"),
                (
                    "            case ToolCallDetected():",
                    '            case HeronSeen():\n                note("a heron")\n',
                ),
            ),
            "docs/cli.md": put("| `queued` |", "| `heron` | `legs` |\n"),
            "tests/test_events.py": put_all(
                ("    MemoriesUsed,\n    Prefill,", "    HeronSeen,\n"),
                ("    (Queued(2),", '    (HeronSeen(2), \'{"kind":"heron","legs":2}\'),\n'),
            ),
            "tests/surfaces/chat/test_render.py": put_all(
                ("    MemoriesUsed,\n    Prefill,", "    HeronSeen,\n"),
                ("    Queued(2),\n    Prefill", "    HeronSeen(2),\n"),
            ),
        },
        "from rkllm_mcp.events import HeronSeen, event_from_dict\n"
        "assert event_from_dict({'kind': 'heron', 'legs': 2}) == HeronSeen(2)",
    ),
    "a release of the runtime with the layout of another": Change(
        {
            "rkllm_mcp/runtime/abi/families.json": exchange('["1.3.1"]', '["1.3.1", "1.3.9"]'),
            "rkllm_mcp/runtime/abi/releases.json": put(
                '    "34167b32f99cb7ab19e21fb579fb750d96b878f1": "1.3.0"', f'    "{"5" * 40}": "1.3.9",\n'
            ),
            "tests/runtime/test_abi.py": put('        "1.3.1": "1.3.1",\n', '        "1.3.9": "1.3.1",\n'),
        },
        "from rkllm_mcp.models.runtimes import pullable_releases\nassert next(iter(pullable_releases())) == '1.3.9'",
    ),
    "a setting of the page": Change(
        {
            "rkllm_mcp/surfaces/web/js/preferences.js": exchange('"size" | ', '"size" | "heron" | '),
            "rkllm_mcp/surfaces/web/js/appearance.js": put(
                "/** Show the colours",
                "/** Show a heron. */\nexport function applyHeron() {\n"
                '  document.documentElement.dataset["heron"] = preference("heron");\n}\n\n',
            ),
            "rkllm_mcp/surfaces/web/js/panels/settings.js": put_all(
                ('"size" | "voice"} name', '"heron" | '),
                (
                    '      h("section", {}, h("h3", {}, say("key.label"))',
                    '      choice("heron", "settings.heron", [["", "settings.automatic"]], applyHeron),\n',
                ),
                ("applyTextSize, ", "applyHeron, "),
            ),
            "rkllm_mcp/surfaces/web/js/phrases.en.js": put('  "settings.size":', '  "settings.heron": "Heron",\n'),
            "rkllm_mcp/surfaces/web/js/phrases.ja.js": put('  "settings.size":', '  "settings.heron": "サギ",\n'),
            "rkllm_mcp/surfaces/http/person.py": put(
                '    size: Literal["", "large"', '    heron: Literal["", "grey"] | None = None\n'
            ),
        },
        "from rkllm_mcp.surfaces.http.person import PageSettings\nassert PageSettings(heron='grey').heron == 'grey'",
    ),
    "a message": Change(
        {
            "rkllm_mcp/catalogue.en.json": put('  "answer.queued":', '  "answer.heron": "a heron flies by",\n'),
            "rkllm_mcp/catalogue.ja.json": put('  "answer.queued":', '  "answer.heron": "サギが飛んでいます",\n'),
            "rkllm_mcp/surfaces/chat/render.py": put(
                "@dataclass(eq=False)\nclass TerminalRenderer:",
                'def heron(phrases: Catalogue) -> str:\n    """Return the message of a heron."""\n'
                '    return phrases.sentence("answer.heron")\n\n\n',
            ),
        },
        "from rkllm_mcp.catalogue import read_catalogue\n"
        "assert read_catalogue('ja').sentence('answer.heron') == 'サギが飛んでいます'",
    ),
    "a key of the configuration": Change(
        {
            "rkllm_mcp/config/sections.py": put(
                "    wait_for_servers_s: NotNegativeSeconds = 3.0\n",
                '    heron: Positive = 8\n    """Number of herons."""\n',
            )
        },
        "from rkllm_mcp.config.sections import Config\nassert Config().agent.heron == 8\n"
        "assert '| `heron` |' in open('docs/configuration.md', encoding='utf-8').read()",
    ),
}


def test_each_row_of_the_commonest_changes_is_tried() -> None:
    text = (REPOSITORY / "CONTRIBUTING.md").read_text("utf-8")
    (table,) = re.findall(r"\| I want to add or change \| files .*\n\|[-|]+\n((?:\|.*\n)+)", text)
    rows = [line.split("|")[1].strip() for line in table.splitlines()]
    assert len(rows) == 12
    assert [name for name in rows if name not in CHANGES] == []


def row(change: str) -> tuple[list[str], bool, bool, list[str]]:
    """The files of a row, whether it ends with ``scripts/fix`` and with its snapshots, and the tests that it names."""
    text = (REPOSITORY / "CONTRIBUTING.md").read_text("utf-8")
    (line,) = [line for line in text.splitlines() if line.startswith(f"| {change} |")]
    files, tests = (re.findall(r"`([^`]+)`", cell) for cell in line.strip("| ").split(" | ")[1:])
    fixes = [word for word in files if word.startswith("scripts/fix")]
    return [word for word in files if word not in fixes], bool(fixes), "scripts/fix --snapshots" in fixes, tests


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_touches_only_files_that_its_row_names(change: str) -> None:
    named = row(change)[0]
    for file in CHANGES[change].edits:
        short = file.removeprefix("rkllm_mcp/")
        assert any(short == name or (name.endswith("/") and short.startswith(name)) for name in named), (file, named)


def run(copy: Path, *words: str, **variables: str) -> None:
    """Run Python in the changed tree."""
    done = subprocess.run(
        [sys.executable, *words],
        cwd=copy,
        env={**os.environ, "PYTHONPATH": str(copy), "RKLLM_MCP_SHARED": str(REPOSITORY.parent / "shared"), **variables},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == 0, f"{done.stdout[-6000:]}{done.stderr[-2000:]}"


def copy_of_the_tree(place: Path) -> Path:
    files = subprocess.run(["git", "ls-files", "-z"], cwd=REPOSITORY, capture_output=True, check=True, text=True).stdout
    for name in filter(None, files.split("\0")):
        if (REPOSITORY / name).is_file():
            (place / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(REPOSITORY / name, place / name)
    shutil.copytree(REPOSITORY / "native" / "build", place / "native" / "build")
    return place


def test_changes_by_their_rows_alone_pass_the_tests_that_the_rows_name(tmp_path: Path) -> None:
    copy = copy_of_the_tree(tmp_path / "tree")
    tests = [*LISTS]
    is_fixed = has_snapshots = False
    for name, change in CHANGES.items():
        _, row_is_fixed, row_has_snapshots, named = row(name)
        is_fixed |= row_is_fixed
        has_snapshots |= row_has_snapshots
        tests += named
        for file, edit in change.edits.items():
            path = copy / file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(edit(path.read_text("utf-8") if path.exists() else ""), "utf-8")
    assert is_fixed
    assert has_snapshots
    run(copy, "-m", "scripts.reference")
    run(copy, "-m", "pytest", "--quiet", "tests/test_snapshots.py", RKLLM_MCP_WRITE_SNAPSHOTS="1")
    for change in CHANGES.values():
        run(copy, "-c", change.use)
    files = [
        file for test in dict.fromkeys(tests) for file in OF_FOLDERS.get(test, [test]) if file.startswith("tests/")
    ]
    assert all((copy / file).is_file() for file in files), files
    run(copy, "-m", "pytest", "--quiet", "--default-tier", "-p", "no:cacheprovider", "--no-header", *files)
