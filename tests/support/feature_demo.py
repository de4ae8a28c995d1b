"""An assistant whose script and servers use everything: resources, prompts, questions, sampling, approvals."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

from tests.support.demo_app import Demo, PythonServer, make_demo
from tests.support.demo_model import DEMO_TOKENIZER
from tests.support.shared import REPOSITORY

_HERE = {"PYTHONPATH": str(REPOSITORY)}
DESK: PythonServer = ("desk", ("-S", "-m", "tests.support.mcp_servers.asking"), _HERE)
OLD_DESK: PythonServer = ("desk", ("-S", "-m", "tests.support.mcp_servers.asking", "legacy"), _HERE)
NOTES: PythonServer = ("notes", ("-S", "-m", "tests.support.mcp_servers.notebook"), _HERE)
TINY: PythonServer = ("tiny", ("-S", "-m", "tests.support.mcp_servers.tiny"), _HERE)

CARD = """
name = "secretary"
template = "qwen2.5"
file = "secretary.rkllm"
emulated = true
"""
SCRIPT = """RKLLM-EMULATOR 1
vocabulary tokenizer.json
eos <|im_end|>
context 4096
speed {speed}

rule
  user capital of France
  say Paris.

rule
  user Who am I
  results 0
  call ask_owner {{}}

rule
  user Let me log in
  results 0
  call ask_address {{"url":"https://example.com/login"}}

rule
  user Ask yourself
  results 0
  call ask_model {{"question":"What is the capital of France?"}}

rule
  user Delete both
  results 0
  call delete_file {{"path":"one.txt"}}
  call delete_file {{"path":"two.txt"}}

rule
  user [Dd]elete ([a-z.]+)
  results 0
  call delete_file {{"path":"$1"}}

rule
  results 1+
  result ^(.*)$
  say The tool said: %1

rule
  user Review this ([a-z]+) code
  prompt No globals
  say The $1 code is fine.

rule
  user What is to be done
  prompt Buy milk
  say You should buy milk.

rule
  say I do not know.
"""


def make_features(
    folder: Path,
    servers: Sequence[PythonServer] = (DESK, NOTES),
    *,
    extra: str = "",
    speed: str = "flat",
    exist_ok: bool = False,
) -> Demo:
    """The assistant in ``folder``, with its own home."""
    model = folder / "secretary"
    model.mkdir(parents=True, exist_ok=exist_ok)
    shutil.copy(DEMO_TOKENIZER, model / "tokenizer.json")
    (model / "model.toml").write_text(CARD, "utf-8")
    (model / "secretary.rkllm").write_text(SCRIPT.format(speed=speed), "utf-8")
    demo = make_demo(folder, servers, path=model, extra=extra, speed="")
    # Its tools ask questions of their own, which is what the tests are about.
    text = demo.config.read_text("utf-8").replace('name = "desk"\n', 'name = "desk"\napprove = "dangerous"\n')
    demo.config.write_text(text, "utf-8")
    return demo
