"""The rules of the import graph; docs/development/architecture.md explains the table of layers.

A rule reads a ``Graph`` and returns sentences.
"""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

import rkllm_mcp
from rkllm_mcp.surfaces.cli.main import main
from scripts.shape import Graph, Module, repeated_classes

REPOSITORY = Path(__file__).resolve().parents[1]
# Python 3.10 does not have tomllib, which is imported there only from 3.11 on.
STANDARD = sys.stdlib_module_names | {"tomllib"}


@dataclass(frozen=True)
class Layers:
    """What the rules know about one shape of the package.

    A part is a module or package directly below ``rkllm_mcp``, or a longer name that is in ``may_import``.

    Args:
        values: parts that import the standard library and each other.
        pure: parts that do no IO.
        may_import: the parts that each part may import in addition to itself.
        libraries: the libraries that a part may import; a part that is not named may import all.
        worker: the module that runs in the worker process.
        worker_side: modules of the runtime that it may load; of packages everything in them.
        longest_chain: the most modules on a chain of imports at module level.
        repeated_classes: public class names that may occur more than once.
        path: the parts that an answer goes through, in order.
    """

    values: frozenset[str]
    pure: frozenset[str]
    may_import: Mapping[str, frozenset[str]]
    libraries: Mapping[str, frozenset[str]]
    worker: str
    worker_side: frozenset[str]
    longest_chain: int
    repeated_classes: frozenset[str]
    path: tuple[str, ...]

    def part_of(self, module: str) -> str:
        """The part that a module belongs to; empty for the package itself."""
        below = module.partition(".")[2]
        name = below
        while name and name not in self.may_import:
            name = name.rpartition(".")[0]
        return name or below.partition(".")[0]


_NONE = frozenset[str]()
_PURE_LIBRARIES = frozenset(
    {"json_repair", "jsonschema", "llguidance", "pydantic", "referencing", "tokenizers", "tomli"}
)


def _layers() -> Layers:
    values = frozenset(
        {
            "errors",
            "messages",
            "events",
            "generation",
            "sampling",
            "elicitation",
            "protocols",
            "records",
            "text",
            "catalogue",
        }
    )
    # Rules of time and the sentences that hold one; what runs schedules is above the store.
    pure = frozenset({"prompt", "toolcalls", "schedules.rules", "schedules.sentences"})
    known = values | pure | {"config", "tasks"}
    io = frozenset({"board", "models", "store", "runtime", "mcp_client", "openapi", "builtin", "speech"})
    # What is stored of a tenant and used in its answers: each has its tools, its exports and its runs in one place.
    stored = frozenset({"conversations", "memory", "schedules"})
    below = known | io | stored | {"tools", "providers", "agent", "models.calibration"}
    application = frozenset({"app", "completions", "diagnostics"})
    surface = known | stored | application
    return Layers(
        values=values,
        pure=pure,
        may_import={
            **dict.fromkeys(values, values),
            **dict.fromkeys(pure, values),
            "schedules.sentences": values | {"schedules.rules"},
            "config": values | pure,
            "tasks": _NONE,
            **dict.fromkeys(io, known),
            # models.runtimes: the releases of the runtime are downloaded and checked as models are.
            "models": known | {"board", "runtime"},
            # Samples of prompts with the assistant's own system text, for the conversion of a model.
            "models.calibration": known | {"agent"},
            "tools": known | {"mcp_client", "openapi", "builtin", "store"},
            "providers": known,
            "agent": known,
            # agent.usage counts the tokens of what the model is asked about a conversation.
            "conversations": known | {"store", "agent"},
            # What a person wants remembered is found with the words of the search for tools; conversations.titles has
            # the cleaning of a line that a model wrote.
            "memory": known | {"store", "agent", "tools", "conversations"},
            "schedules": known | {"store"},
            "app": below,
            "completions": below | {"app"},
            "diagnostics": below | {"app"},
            # surfaces.terminal: widths, colours and columns; surfaces.tables: lists for the chat and the command line.
            "surfaces.terminal": known,
            "surfaces.tables": surface | {"surfaces.terminal"},
            "surfaces.invocation": surface | {"surfaces.terminal"},
            # surfaces.boards: what the boards of the configuration answer, for the command line and the page.
            "surfaces.boards": known | {"surfaces.invitations"},
            # surfaces.invitations: how a new board gets what all share, for both sides of it.
            "surfaces.invitations": known,
            # surfaces.chat.host: the store that a conversation is read from, as a type; surfaces.chat.speech.
            "surfaces.chat": surface
            | {
                "store",
                "speech",
                *(f"surfaces.{name}" for name in ("terminal", "tables", "invocation", "running_service")),
            },
            # /api/pull and /api/delete change model folders.
            "surfaces.http": surface
            | {"models", "speech", "surfaces.invitations"}
            | {f"surfaces.{name}" for name in ("boards", "terminal", "invocation", "running_service")},
            # The services that run, for the service itself and for the commands that use one.
            "surfaces.running_service": known | {"app"},
            # A Python function becomes a tool of this process.
            "surfaces.library": surface | {"builtin"},
            "surfaces.mcp_server": surface | {f"surfaces.{name}" for name in ("terminal", "invocation", "chat")},
            # The command ``models`` shows and changes model folders.
            "surfaces.cli": surface
            | {"models", "speech"}
            | {
                f"surfaces.{name}"
                for name in (
                    "boards",
                    "chat",
                    "http",
                    "invitations",
                    "invocation",
                    "mcp_server",
                    "running_service",
                    "tables",
                    "terminal",
                )
            }
            # surfaces.cli.schedules: the store, as a type.
            | {"store"},
            "surfaces": _NONE,
            "__main__": frozenset({"surfaces.cli"}),
        },
        libraries={
            **dict.fromkeys(values, _NONE),
            "tasks": frozenset({"anyio"}),
            **dict.fromkeys(pure, _PURE_LIBRARIES),
        },
        worker="rkllm_mcp.runtime.worker",
        worker_side=frozenset(
            f"rkllm_mcp.runtime.{name}" for name in ("abi", "frames", "inputs", "library", "model", "worker")
        ),
        longest_chain=14,
        repeated_classes=_NONE,
        path=("prompt", "toolcalls", "runtime", "mcp_client", "agent", "surfaces"),
    )


LAYERS = _layers()
NEVER_IN_PURE = frozenset({"anyio", "asyncio", "ctypes", "os", "socket", "subprocess", "threading", "time"})

# The host and the servers meet over MCP alone; what they share imports neither.
SEPARATE = (
    ("rkllm_mcp", "mcp_servers"),
    ("mcp_servers", "rkllm_mcp"),
    *(("rkllm_base", other) for other in ("rkllm_mcp", "mcp_servers")),
)

BASE_WITH_IO = frozenset(
    f"rkllm_base.{name}" for name in ("answers", "lines", "listener", "memory", "postgres", "sqlite", "uploads")
)

Rule = Callable[[Graph, Layers], list[str]]


def forbidden_edges(graph: Graph, layers: Layers) -> list[str]:
    wrong: list[str] = []
    for edge in graph.edges:
        if not edge.source.startswith("rkllm_mcp."):
            continue
        source, target = layers.part_of(edge.source), layers.part_of(edge.target)
        if edge.target.startswith("rkllm_base"):
            # It is below all layers, but what does IO there is not for those that do none.
            if edge.target in BASE_WITH_IO and source in layers.values | layers.pure:
                wrong.append(f"{edge.source} imports {edge.target}: it may do no IO")
            continue
        if source not in layers.may_import:
            wrong.append(f"{edge.source} has no place in the table of layers")
        elif edge.target == "rkllm_mcp":
            # An import through the package's public names would hide where it leads.
            if edge.name not in {"rkllm_mcp", "rkllm_mcp.__version__"}:
                wrong.append(f"{edge.source} imports {edge.name}; import it from the module that has it")
        elif target != source and target not in layers.may_import[source]:
            wrong.append(f"{edge.source} imports {edge.target}: {source} may not know {target} ({edge.kind})")
    return wrong


def cycles(graph: Graph, layers: Layers) -> list[str]:
    """Modules that import each other, directly or not, at any time."""
    return [f"{name} is on a cycle of imports, or between two" for name in graph.on_cycles()]


def long_chains(graph: Graph, layers: Layers) -> list[str]:
    """The longest chain of imports at module level, when it is too long."""
    chain = graph.longest_chain()
    return [f"a chain of {len(chain)}: {' -> '.join(chain)}"] if len(chain) > layers.longest_chain else []


def forbidden_libraries(graph: Graph, layers: Layers) -> list[str]:
    wrong: list[str] = []
    for module in graph.of("rkllm_mcp"):
        part, libraries = layers.part_of(module.name), _libraries(module)
        if part in layers.pure:
            wrong += [f"{module.name} imports {name}: it may do no IO" for name in sorted(libraries & NEVER_IN_PURE)]
        if part in layers.libraries:
            foreign = libraries - STANDARD - layers.libraries[part]
            wrong += [f"{module.name} imports {name}: not a library of its layer" for name in sorted(foreign)]
    return wrong


def _libraries(module: Module) -> set[str]:
    return {each.name.split(".")[0] for each in module.imports} - {"rkllm_mcp", "rkllm_base"}


def what_the_worker_may_not_load(graph: Graph, layers: Layers) -> list[str]:
    """What the worker process loads and may not: neither its side of the runtime, a value, rkllm_base nor standard."""
    if layers.worker not in graph.modules:
        return [f"there is no {layers.worker}"]
    wrong: list[str] = []
    for name in sorted(graph.reached_from(layers.worker, "module", "deferred") - {"rkllm_mcp", "rkllm_mcp.runtime"}):
        # What it loads of rkllm_base imports the standard library only, as everything here.
        is_worker_side = any(f"{name}.".startswith(f"{each}.") for each in ("rkllm_base", *layers.worker_side))
        if not is_worker_side and layers.part_of(name) not in layers.values:
            wrong.append(f"the worker loads {name}")
        loaded = {each.name.split(".")[0] for each in graph.modules[name].imports if each.kind != "typing"}
        foreign = loaded - STANDARD - {"rkllm_mcp", "rkllm_base"}
        wrong += [f"the worker loads {each}, which {name} imports" for each in sorted(foreign)]
    return wrong


def repeated_names(graph: Graph, layers: Layers) -> list[str]:
    """Public classes that share a name, and names that need no permission to repeat any more."""
    repeated = repeated_classes(graph)
    wrong = [f"{name} is a class of {', '.join(repeated[name])}" for name in repeated.keys() - layers.repeated_classes]
    return sorted(wrong) + [f"{name} no longer repeats" for name in sorted(layers.repeated_classes - repeated.keys())]


def meetings_outside_mcp(graph: Graph, layers: Layers) -> list[str]:
    """Imports between the host and the servers, which meet over MCP alone."""
    return [
        f"{module.name} imports {each.name}"
        for package, other in SEPARATE
        for module in graph.of(package)
        for each in module.imports
        if each.name.split(".")[0] == other
    ]


def undocumented_names(graph: Graph, layers: Layers) -> list[str]:
    wrong: list[str] = []
    for module in graph.modules.values():
        if module.source.strip() and not ast.get_docstring(module.tree):
            wrong.append(module.name)
        for node in module.tree.body:
            is_definition = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
            if is_definition and not node.name.startswith("_") and not ast.get_docstring(node):
                wrong.append(f"{module.name}.{node.name}")
    return wrong


def bare_class_variables(graph: Graph, layers: Layers) -> list[str]:
    """Class variables without their type, which pydantic cannot read on Python 3.10."""
    return [
        f"{module.name} line {node.lineno}: ClassVar[...]"
        for module in graph.modules.values()
        if "ClassVar" in module.source
        for node in ast.walk(module.tree)
        if isinstance(node, ast.AnnAssign) and ast.unparse(node.annotation) == "ClassVar"
    ]


RULES: tuple[Rule, ...] = (
    forbidden_edges,
    cycles,
    long_chains,
    forbidden_libraries,
    what_the_worker_may_not_load,
    repeated_names,
    meetings_outside_mcp,
    undocumented_names,
    bare_class_variables,
)


@pytest.fixture(scope="session")
def graph() -> Graph:
    """The product's import graph: each file is parsed once for all rules."""
    return Graph(REPOSITORY)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_the_tree_keeps_the_rule(rule: Rule, graph: Graph) -> None:
    assert rule(graph, LAYERS) == []


def test_the_docstring_of_the_package_is_its_table_of_contents(graph: Graph) -> None:
    docstring = rkllm_mcp.__doc__ or ""
    named = set(re.findall(r"``([a-z_]+)``", docstring))
    parts = {module.name.split(".")[1] for module in graph.of("rkllm_mcp") if "." in module.name} - {"__main__"}
    assert named == parts
    assert tuple(re.findall(r"^\d+\. ``([a-z_]+)``", docstring, re.MULTILINE)) == LAYERS.path


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


_IMPORT_EACH = """
import json, os, sys
for name in sys.argv[1:]:
    # A process of its own for each: what one import loads must not count for the next.
    if (child := os.fork()) == 0:
        __import__(name)
        print(json.dumps([name, sorted({each.split(".")[0] for each in sys.modules})]), flush=True)
        os._exit(0)
    if os.waitpid(child, 0)[1]:
        sys.exit(name + " cannot be imported")
"""


def libraries_loaded_by(*modules: str) -> dict[str, set[str]]:
    """Libraries that take time or memory in a fresh interpreter that imported each of ``modules``."""
    command = [sys.executable, "-c", _IMPORT_EACH, *modules]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=REPOSITORY)
    loaded = dict(json.loads(line) for line in done.stdout.splitlines())
    return {name: set(HEAVY & set(loaded[name])) for name in modules}


def test_importing_the_package_and_the_worker_loads_no_library_and_the_command_line_no_mcp() -> None:
    package, worker, command = "rkllm_mcp", LAYERS.worker, main.__module__
    loaded = libraries_loaded_by(package, worker, command)
    assert (loaded[package], loaded[worker]) == (set(), set())
    assert "typer" in loaded[command]
    assert "mcp" not in loaded[command]


def test_every_upper_bound_of_a_library_gives_its_reason_in_its_line() -> None:
    lines = (REPOSITORY / "pyproject.toml").read_text("utf-8").splitlines()
    bounded = [line for line in lines if re.search(r'"[a-z0-9-]+(\[[a-z,]+\])?[^;"]*<[0-9]', line)]
    assert len(bounded) >= 5
    assert [line for line in bounded if not re.search(r"# \S+ \w+", line)] == []
