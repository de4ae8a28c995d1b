"""The cases of ``shared/cases/programs`` and ``programs2``: inputs of public bug reports, with what is right."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.support.served import scripted_model
from tests.support.shared import shared_path

Row = dict[str, Any]

SETS = ("programs", "programs2")

# The script that the cases' README describes.
PARROT = r"""
rule
  user REASON<<(.*)##(.*)>>
  results 0
  think $1
  say $2

rule
  user weather in ([A-Z][a-z]+)
  results 0
  call get_weather {"city":"$1"}

rule
  user Use calendar\.read
  results 0
  call calendar.read {"day":"Monday"}

rule
  user Is other offered
  prompt "name": ?"other"
  say Yes, other is offered.

rule
  results 1+
  result ^(.*)$
  say It says %1, this time.

rule
  user ([^[:cntrl:]]*)$
  say Heard: $1
"""


def program_rows(file: str, cases: str = "programs") -> list[Row]:
    """Return the rows of a file of the cases; skips the calling test, by name, when it is not there."""
    text = shared_path("cases", cases, file).read_text("utf-8")
    return json.loads(text) if file.endswith(".json") else [json.loads(line) for line in text.splitlines()]


def listed(failed: Mapping[str, object]) -> str:
    """Return the failed rows, one a line, for the message of a test."""
    return "\n".join(f"{name}: {fault}" for name, fault in failed.items())


def parrot(folder: Path) -> Path:
    """Make the model folder of the cases' script, with a token for each byte: some rows count tokens."""
    model = scripted_model(folder, PARROT, template="qwen3", context=65536)
    state = json.loads((model / "tokenizer.json").read_text("utf-8"))
    state["model"]["merges"] = []
    (model / "tokenizer.json").write_text(json.dumps(state), "utf-8")
    return model
