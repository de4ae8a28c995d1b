"""The import graph of the product's packages, and modules whose size a reviewer should look at.

    .venv/bin/python -m scripts.shape        (scripts/check --shape)

``Graph`` reads every file once; tests/test_architecture.py checks its rules on it. ``main`` prints modules below 120
lines with one importer, in the same package, which may belong into that importer, and modules over 700 lines. Both
are for a reviewer to judge: the exit code is always 0.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Literal, TypeAlias

PACKAGES = ("rkllm_mcp", "mcp_servers", "rkllm_base")
SMALL_LINES = 120
LARGE_LINES = 700

# module: when the file is imported; deferred: when a function is called; typing: only for a type checker.
Kind: TypeAlias = Literal["module", "deferred", "typing"]


@dataclass(frozen=True)
class Import:
    """One imported name: ``from a import b`` is ``a.b``."""

    name: str
    kind: Kind


@dataclass(frozen=True)
class Module:
    """One source file."""

    name: str
    path: Path

    @cached_property
    def source(self) -> str:
        """Its text."""
        return self.path.read_text(encoding="utf-8")

    @cached_property
    def tree(self) -> ast.Module:
        """Its syntax tree."""
        return ast.parse(self.source)

    @cached_property
    def lines(self) -> int:
        """The number of lines."""
        return len(self.source.splitlines())

    @property
    def package(self) -> str:
        """The package that relative imports start from."""
        return self.name if self.path.name == "__init__.py" else self.name.rpartition(".")[0]

    @cached_property
    def imports(self) -> tuple[Import, ...]:
        """Every import in the file."""
        return tuple(self._imports(self.tree, "module"))

    def _imports(self, parent: ast.AST, kind: Kind) -> Iterator[Import]:
        for node in ast.iter_child_nodes(parent):
            if isinstance(node, ast.Import):
                yield from (Import(alias.name, kind) for alias in node.names)
            elif isinstance(node, ast.ImportFrom):
                yield from (Import(f"{self._origin(node)}.{alias.name}", kind) for alias in node.names)
            elif isinstance(node, ast.If) and ast.unparse(node.test).rpartition(".")[2] == "TYPE_CHECKING":
                yield from self._imports(ast.Module(node.body, []), "typing")
                yield from self._imports(ast.Module(node.orelse, []), kind)
            elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                yield from self._imports(node, "deferred")
            else:
                yield from self._imports(node, kind)

    def _origin(self, node: ast.ImportFrom) -> str:
        if not node.level:
            return node.module or ""
        above = self.package.split(".")[: len(self.package.split(".")) - node.level + 1]
        return ".".join([*above, *([node.module] if node.module else [])])


@dataclass(frozen=True)
class Edge:
    """An import of one module of the product by another.

    Args:
        source: imports.
        target: is imported.
        name: as it is written.
        kind: when it is imported.
    """

    source: str
    target: str
    name: str
    kind: Kind


class Graph:
    """The modules of the product and their imports.

    Args:
        root: the folder that holds the packages.
    """

    def __init__(self, root: Path) -> None:
        self.modules: Mapping[str, Module] = {
            module.name: module for package in PACKAGES for module in _modules_of(root, package)
        }

    @cached_property
    def edges(self) -> tuple[Edge, ...]:
        """Every import of a module by another, also by the package that only lists public names."""
        found: list[Edge] = []
        for module in self.modules.values():
            for imported in module.imports:
                target = imported.name
                while target and target not in self.modules:
                    target = target.rpartition(".")[0]
                if target and target != module.name:
                    found.append(Edge(module.name, target, imported.name, imported.kind))
        return tuple(found)

    def of(self, package: str) -> Iterator[Module]:
        """The modules of one package."""
        return (module for name, module in self.modules.items() if name.partition(".")[0] == package)

    def targets(self, *kinds: Kind) -> dict[str, set[str]]:
        """The modules that each module imports, over edges of these kinds."""
        found: dict[str, set[str]] = {name: set() for name in self.modules}
        for edge in self.edges:
            # The public names of the package lead everywhere, and they are imported when they are asked for.
            if edge.kind in kinds and edge.source != "rkllm_mcp":
                found[edge.source].add(edge.target)
        return found

    def on_cycles(self) -> list[str]:
        """Modules on a cycle, over all kinds of edges, or between two cycles."""
        graph = self.targets("module", "deferred", "typing")
        while graph:
            imported = set[str]().union(*graph.values())
            ends = {name for name, targets in graph.items() if not targets & graph.keys() or name not in imported}
            if not ends:
                break
            graph = {name: targets - ends for name, targets in graph.items() if name not in ends}
        return sorted(graph)

    def longest_chain(self) -> list[str]:
        """The longest chain of imports at module level, from the importer down; empty where there is a cycle."""
        targets = self.targets("module")
        longest: dict[str, list[str]] = {}
        none: list[str] = []
        while len(longest) < len(targets):
            ready = [name for name in targets if name not in longest and targets[name] <= longest.keys()]
            if not ready:
                return []
            for name in ready:
                longest[name] = [name, *max((longest[each] for each in targets[name]), key=len, default=none)]
        return max(longest.values(), key=len, default=none)

    def reached_from(self, name: str, *kinds: Kind) -> set[str]:
        """A module and everything it imports, directly or not."""
        targets = self.targets(*kinds)
        found: set[str] = set()
        waiting = [name]
        while waiting:
            if (current := waiting.pop()) not in found:
                found.add(current)
                waiting += targets[current]
        return found

    def importers(self) -> dict[str, Set[str]]:
        """The modules that import each module."""
        found: dict[str, Set[str]] = {name: set[str]() for name in self.modules}
        for source, targets in self.targets("module", "deferred", "typing").items():
            for target in targets:
                found[target] = {*found[target], source}
        return found


def _modules_of(root: Path, package: str) -> Iterator[Module]:
    for path in sorted((root / package).rglob("*.py")):
        parts = path.relative_to(root).with_suffix("").parts
        yield Module(".".join(parts[:-1] if parts[-1] == "__init__" else parts), path)


def for_one_importer(graph: Graph) -> Iterator[str]:
    """Small modules with one importer, in the same package."""
    for name, importers in graph.importers().items():
        module = graph.modules[name]
        if len(importers) != 1 or module.path.name == "__init__.py" or module.lines >= SMALL_LINES:
            continue
        [importer] = importers
        if graph.modules[importer].package == module.package:
            yield f"{name} ({module.lines} lines) is imported by {importer} alone"


def large(graph: Graph) -> Iterator[str]:
    """Modules over 700 lines."""
    return (f"{each.name} has {each.lines} lines" for each in graph.modules.values() if each.lines > LARGE_LINES)


def repeated_classes(graph: Graph) -> dict[str, list[str]]:
    """Public classes of ``rkllm_mcp`` whose name occurs more than once, with the modules that define them."""
    classes = [
        (node.name, module.name)
        for module in graph.of("rkllm_mcp")
        for node in module.tree.body
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    ]
    counts = Counter(name for name, _ in classes)
    return {name: [home for each, home in classes if each == name] for name in sorted(counts) if counts[name] > 1}


def main() -> None:
    """Print what a reviewer should look at."""
    graph = Graph(Path(__file__).resolve().parents[1])
    small, big = list(for_one_importer(graph)), list(large(graph))
    print(f"Modules below {SMALL_LINES} lines with one importer, in the same package: {len(small)}", *small, sep="\n  ")
    print(f"Modules over {LARGE_LINES} lines: {len(big)}", *big, sep="\n  ")
    chain = graph.longest_chain()
    print(f"Longest chain of imports at module level: {len(chain)}", *chain, sep="\n  ")


if __name__ == "__main__":
    main()
