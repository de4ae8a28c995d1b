"""The shape of the code: who may import whom, and how long things may be; docs/architecture.md explains the table.

The rules read the source with ast and return sentences; each is shown to catch a violation planted in a small tree.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import pytest

import rkllm_mcp

REPOSITORY = Path(__file__).resolve().parents[1]

VALUES = frozenset({"errors", "messages", "events", "generation", "calling", "forms", "offers", "records"})
NO_IO = frozenset({"prompt", "toolcalls", "encode"})
IO = frozenset({"runtime", "tools", "store", "board", "shelf"})
BELOW_THE_ROOTS = VALUES | NO_IO | IO | {"config", "providers", "agent"}
# agent knows the port in providers/__init__.py; providers know nothing of agent.
MAY_IMPORT: dict[str, frozenset[str]] = {
    **dict.fromkeys(VALUES, VALUES),
    **dict.fromkeys(NO_IO, VALUES),
    "config": VALUES | NO_IO,
    **dict.fromkeys(IO, VALUES | {"config"}),
    "tools": VALUES | {"config", "toolcalls"},
    "providers": VALUES | NO_IO | {"config"},
    "agent": VALUES | NO_IO | {"config", "providers"},
    "availability": VALUES | {"config"},
    "assembly": BELOW_THE_ROOTS | {"availability"},
    "equipment": BELOW_THE_ROOTS | {"assembly"},
    "head_start": BELOW_THE_ROOTS,
    "specialists": BELOW_THE_ROOTS | {"assembly"},
    "core": BELOW_THE_ROOTS | {"assembly", "specialists"},
    "under_way": VALUES | {"agent"},
    "keeping": VALUES | {"agent", "store", "tools"},
    "app": BELOW_THE_ROOTS | {"availability", "assembly", "core", "equipment", "head_start", "keeping", "under_way"},
    "tenancy": VALUES | {"config", "app", "core"},
    "completions": VALUES | NO_IO | {"config", "providers", "agent", "app"},
    "abilities": BELOW_THE_ROOTS | {"assembly", "app", "specialists"},
    "acquisition": BELOW_THE_ROOTS,
    "inspection": BELOW_THE_ROOTS | {"availability", "assembly", "equipment"},
    "measurement": BELOW_THE_ROOTS | {"availability", "assembly"},
    "surfaces": VALUES
    | NO_IO
    | {"config", "abilities", "acquisition", "app", "completions", "core", "inspection", "measurement", "tenancy"},
    "__main__": frozenset({"surfaces"}),
}
NEVER_IN_NO_IO = frozenset({"anyio", "asyncio", "ctypes", "os", "socket", "subprocess", "threading", "time"})
LIBRARIES: dict[str, frozenset[str]] = {
    **dict.fromkeys(VALUES, frozenset[str]()),
    **dict.fromkeys(NO_IO, frozenset({"json_repair", "jsonschema", "pydantic", "referencing", "tokenizers"})),
}
PATH_OF_AN_ANSWER = ("prompt", "toolcalls", "runtime", "tools", "agent", "surfaces")

MODULE_LINES = 400
FUNCTION_LINES = 60


@dataclass(frozen=True)
class Module:
    """One source file: its dotted name and what stands in it."""

    name: str
    path: Path

    @cached_property
    def source(self) -> str:
        return self.path.read_text(encoding="utf-8")

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.source)

    @property
    def part(self) -> str:
        """What the table calls it: the first name below the package; empty for the package itself."""
        return [*self.name.split("."), ""][1]

    @property
    def package(self) -> str:
        return self.name if self.path.name == "__init__.py" else self.name.rpartition(".")[0]

    def imports(self) -> Iterator[str]:
        """Dotted names of what it imports, anywhere in the file; ``from a import b`` is ``a.b``."""
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Import):
                yield from (alias.name for alias in node.names)
            elif isinstance(node, ast.ImportFrom):
                yield from (f"{self._origin(node)}.{alias.name}" for alias in node.names)

    def _origin(self, node: ast.ImportFrom) -> str:
        if not node.level:
            return node.module or ""
        above = self.package.split(".")[: len(self.package.split(".")) - node.level + 1]
        return ".".join([*above, *([node.module] if node.module else [])])


def modules_of(root: Path, package: str) -> dict[str, Module]:
    """Every module of a package under ``root``, by dotted name."""
    found: dict[str, Module] = {}
    for path in sorted((root / package).rglob("*.py")):
        parts = path.relative_to(root).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        found[name] = Module(name, path)
    return found


def edges(modules: dict[str, Module]) -> Iterator[tuple[Module, str, str]]:
    """Every import of one module by another: who imports, the module that is imported, and the name as written."""
    for module in modules.values():
        for name in module.imports():
            target = name
            while target and target not in modules:
                target = target.rpartition(".")[0]
            if target and target != module.name:
                yield module, target, name


def forbidden_edges(root: Path) -> list[str]:
    modules = modules_of(root, "rkllm_mcp")
    wrong: list[str] = []
    for module, target, name in edges(modules):
        if module.name == "rkllm_mcp":
            continue
        part = modules[target].part
        if module.part not in MAY_IMPORT:
            wrong.append(f"{module.name} has no place in the table of layers")
        elif not part:
            # The package's own names are a shop window: an import through it would hide where it leads.
            if name not in {"rkllm_mcp", "rkllm_mcp.__version__"}:
                wrong.append(f"{module.name} imports {name}; import it from the module that has it")
        elif part != module.part and part not in MAY_IMPORT[module.part]:
            wrong.append(f"{module.name} imports {target}: {module.part} may not know {part}")
    return wrong


def cycles(root: Path) -> list[str]:
    """Modules that import each other, directly or around corners."""
    modules = modules_of(root, "rkllm_mcp") | modules_of(root, "mcp_servers")
    graph: dict[str, set[str]] = {name: set() for name in modules}
    for module, target, _ in edges(modules):
        # The package's shop window names everything and is imported by nothing (see forbidden_edges).
        if module.name != "rkllm_mcp":
            graph[module.name].add(target)
    while leaves := [name for name, targets in graph.items() if not targets & graph.keys()]:
        for name in leaves:
            del graph[name]
    return [f"{name} is on a way back to itself, or leads to one" for name in sorted(graph)]


def forbidden_libraries(root: Path) -> list[str]:
    wrong: list[str] = []
    for module in modules_of(root, "rkllm_mcp").values():
        libraries = {name.split(".")[0] for name in module.imports()} - {"rkllm_mcp"}
        if module.part in NO_IO:
            wrong += [f"{module.name} imports {name}: it may do no IO" for name in sorted(libraries & NEVER_IN_NO_IO)]
        if module.part in LIBRARIES:
            foreign = libraries - sys.stdlib_module_names - LIBRARIES[module.part]
            wrong += [f"{module.name} imports {name}: not a library of its layer" for name in sorted(foreign)]
    return wrong


def meetings_outside_mcp(root: Path) -> list[str]:
    """Imports between the host and the servers, which meet over MCP alone."""
    return [
        f"{module.name} imports {name}"
        for package, other in (("rkllm_mcp", "mcp_servers"), ("mcp_servers", "rkllm_mcp"))
        for module in modules_of(root, package).values()
        for name in module.imports()
        if name.split(".")[0] == other
    ]


def long_modules(root: Path) -> list[str]:
    files = [
        path
        for folder, suffixes in (("rkllm_mcp", {".py"}), ("mcp_servers", {".py"}), ("native", {".c", ".h", ".py"}))
        for path in sorted((root / folder).rglob("*"))
        if path.suffix in suffixes and "build" not in path.relative_to(root).parts[:-1]
    ]
    counted = [(path, len(path.read_text(encoding="utf-8").splitlines())) for path in files]
    return [f"{path.relative_to(root)} has {lines} lines" for path, lines in counted if lines > MODULE_LINES]


def long_functions(root: Path) -> list[str]:
    wrong: list[str] = []
    for module in (modules_of(root, "rkllm_mcp") | modules_of(root, "mcp_servers")).values():
        for node in ast.walk(module.tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                lines = (node.end_lineno or node.lineno) - node.lineno + 1
                if lines > FUNCTION_LINES:
                    wrong.append(f"{module.name}.{node.name} has {lines} lines")
    return wrong


def undocumented_names(root: Path) -> list[str]:
    wrong: list[str] = []
    for module in (modules_of(root, "rkllm_mcp") | modules_of(root, "mcp_servers")).values():
        if module.source.strip() and not ast.get_docstring(module.tree):
            wrong.append(module.name)
        for node in module.tree.body:
            is_definition = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
            if is_definition and not node.name.startswith("_") and not ast.get_docstring(node):
                wrong.append(f"{module.name}.{node.name}")
    return wrong


RULES: tuple[Callable[[Path], list[str]], ...] = (
    forbidden_edges,
    cycles,
    forbidden_libraries,
    meetings_outside_mcp,
    long_modules,
    long_functions,
    undocumented_names,
)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_the_tree_keeps_the_rule(rule: Callable[[Path], list[str]]) -> None:
    assert rule(REPOSITORY) == []


DOC = '"""A docstring."""\n'
LONG_FUNCTION = DOC + 'def f():\n    """It."""\n' + "    print()\n" * FUNCTION_LINES
PLANTED: tuple[tuple[Callable[[Path], list[str]], dict[str, str], str], ...] = (
    (
        forbidden_edges,
        {"rkllm_mcp/prompt/a.py": "import rkllm_mcp.agent.b", "rkllm_mcp/agent/b.py": ""},
        "prompt may not know agent",
    ),
    (
        forbidden_edges,
        {"rkllm_mcp/tools/a.py": "from ..runtime import b", "rkllm_mcp/runtime/b.py": ""},
        "tools may not know runtime",
    ),
    (
        forbidden_edges,
        {"rkllm_mcp/config/a.py": "from rkllm_mcp import Engine"},
        "import it from the module that has it",
    ),
    (forbidden_edges, {"rkllm_mcp/a.py": "import rkllm_mcp.b", "rkllm_mcp/b.py": ""}, "has no place in the table"),
    (
        cycles,
        {
            "rkllm_mcp/tools/a.py": "from rkllm_mcp.tools.b import x",
            "rkllm_mcp/tools/b.py": "def f():\n    from rkllm_mcp.tools import a",
        },
        "rkllm_mcp.tools.b is on a way back",
    ),
    (forbidden_libraries, {"rkllm_mcp/toolcalls/a.py": "from time import monotonic"}, "it may do no IO"),
    (forbidden_libraries, {"rkllm_mcp/events.py": "import pydantic"}, "not a library of its layer"),
    (meetings_outside_mcp, {"rkllm_mcp/tools/a.py": "import mcp_servers.weather"}, "imports mcp_servers.weather"),
    (meetings_outside_mcp, {"mcp_servers/a.py": "from rkllm_mcp.errors import E"}, "imports rkllm_mcp.errors.E"),
    (long_modules, {"rkllm_mcp/a.py": "\n" * (MODULE_LINES + 1)}, "a.py has 401 lines"),
    (long_modules, {"native/emulator/a.c": "\n" * (MODULE_LINES + 1)}, "a.c has 401 lines"),
    (long_functions, {"rkllm_mcp/a.py": LONG_FUNCTION}, "a.f has 62 lines"),
    (undocumented_names, {"rkllm_mcp/a.py": DOC + "class A:\n    pass"}, "rkllm_mcp.a.A"),
    (undocumented_names, {"mcp_servers/a.py": "A = 1"}, "mcp_servers.a"),
)


@pytest.mark.parametrize(("rule", "files", "sentence"), PLANTED, ids=[sentence for _, _, sentence in PLANTED])
def test_a_planted_violation_is_found(
    rule: Callable[[Path], list[str]], files: dict[str, str], sentence: str, tmp_path: Path
) -> None:
    for name, source in {"rkllm_mcp/__init__.py": "", **files}.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(source, encoding="utf-8")
        (path.parent / "__init__.py").touch()
    assert any(sentence in found for found in rule(tmp_path)), rule(tmp_path)


def test_the_docstring_of_the_package_is_its_table_of_contents() -> None:
    docstring = rkllm_mcp.__doc__ or ""
    named = set(re.findall(r"``([a-z_]+)``", docstring))
    parts = {module.part for module in modules_of(REPOSITORY, "rkllm_mcp").values()} - {"", "__main__"}
    assert named == parts
    assert tuple(re.findall(r"^\d+\. ``([a-z_]+)``", docstring, re.MULTILINE)) == PATH_OF_AN_ANSWER


def test_every_public_name_can_be_imported() -> None:
    for name in rkllm_mcp.__all__:
        assert getattr(rkllm_mcp, name) is not None
    unknown = "nonsense"
    with pytest.raises(AttributeError, match="has no attribute 'nonsense'"):
        getattr(rkllm_mcp, unknown)


HEAVY = frozenset(
    {
        "anyio",
        "httpx2",
        "json_repair",
        "jsonschema",
        "mcp",
        "prompt_toolkit",
        "pydantic",
        "rich",
        "tokenizers",
        "typer",
    }
)


def libraries_loaded_by(module: str) -> frozenset[str]:
    """Libraries that take time or memory in a fresh interpreter that imported ``module``."""
    code = f"import sys; import {module}; print(*{{name.split('.')[0] for name in sys.modules}})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=REPOSITORY)
    return HEAVY & set(done.stdout.split())


def test_importing_the_package_loads_no_library() -> None:
    assert libraries_loaded_by("rkllm_mcp") == set()


def test_the_process_that_owns_the_npu_loads_no_library() -> None:
    assert libraries_loaded_by("rkllm_mcp.runtime.worker") == set()


def test_the_command_line_starts_without_mcp() -> None:
    assert "mcp" not in libraries_loaded_by("rkllm_mcp.surfaces.cli")
