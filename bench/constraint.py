"""The cost of holding in the host: time of a token, of a correction and of compiling, and memory.

    .venv/bin/python -m bench.constraint

Right answers to the schemas of ``bench.held`` are fed in pieces of four bytes, as long as a token of English is, CPU
time of the process. Memory is what the process grew by.
"""

from __future__ import annotations

import json
import resource
import statistics
import time
from typing import Any

from bench.held import SCHEMAS
from rkllm_mcp.completions.structured_output import ResponseFormat
from rkllm_mcp.toolcalls.constraint import Constraint, answer_constraint

_PIECE = 4
_ROUNDS = 20


def example(schema: Any, root: Any) -> Any:
    """Return a value that a schema allows, with long texts."""
    schema = root["$defs"][schema["$ref"].rpartition("/")[2]] if "$ref" in schema else schema
    if "const" in schema or "enum" in schema:
        return schema["const"] if "const" in schema else schema["enum"][-1]
    if "anyOf" in schema:
        return example(schema["anyOf"][0], root)
    kind: Any = schema.get("type", "object")
    kind = str(kind[0] if isinstance(kind, list) else kind)  # pyright: ignore[reportUnknownArgumentType]
    if kind == "object":
        properties = schema.get("properties", {"note": {"type": "string"}})
        return {key: example(inner, root) for key, inner in properties.items()}
    if kind == "array":
        return [example(schema["items"], root)] * schema.get("minItems", schema.get("maxItems", 1))
    if "pattern" in schema:
        return {"^[0-2]": "12:30", "^[0-9]{5}": "12345", "^[A-Z]": "EUR"}.get(schema["pattern"][:6], "1.2.3")
    words = "東京 and the long way to it"[: schema.get("maxLength", 99)]
    values: dict[str, Any] = {"string": words, "boolean": True, "null": None}
    return values.get(kind, schema.get("minimum", 3))


def memory_mb() -> float:
    """Return the most memory that the process has had."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main() -> None:
    """Print the figures."""
    answer_constraint(ResponseFormat({"type": "object"}).grammar)  # the library itself
    before, compiled_ms, constraints = memory_mb(), list[float](), list[tuple[Constraint, str]]()
    for schema, _ in SCHEMAS.values():
        started = time.process_time()
        constraint = answer_constraint(ResponseFormat(schema).grammar)
        compiled_ms.append((time.process_time() - started) * 1000)
        constraints.append((constraint, json.dumps(example(schema, schema), ensure_ascii=False)))
    token_us, correction_us = list[float](), list[float]()
    for constraint, text in constraints * _ROUNDS:
        held = constraint.begin()
        for start in range(0, len(text), _PIECE):
            piece = text[start : start + _PIECE]
            started = time.process_time()
            accepted = held.feed(piece)
            token_us.append((time.process_time() - started) * 1e6)
            if accepted < len(piece):
                break
        started = time.process_time()
        other = constraint.begin()
        other.feed("Sure")
        other.other_spelling("Sure")
        other.structure()
        correction_us.append((time.process_time() - started) * 1e6)
    ordered = sorted(token_us)
    print(f"a token: median {statistics.median(token_us):.1f} µs, mean {statistics.mean(token_us):.1f}, ", end="")
    print(f"99 of 100 below {ordered[len(ordered) * 99 // 100]:.0f} µs; {len(token_us)} tokens")
    print(f"a correction: median {statistics.median(correction_us):.0f} µs; compiling: median ", end="")
    print(f"{statistics.median(compiled_ms):.2f} ms, most {max(compiled_ms):.1f} ms")
    print(f"memory for {len(constraints)} schemas and their answers: {memory_mb() - before:.1f} MB")


if __name__ == "__main__":
    main()
