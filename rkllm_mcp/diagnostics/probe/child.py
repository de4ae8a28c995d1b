"""The probe process: JSON lines in and out on a socket.

    {"library": …, "load": {…}, "prompts": {…}, …}          ->  {"loaded": {…}}  or  {"refused": "why"}
    {"experiment": "pace"}                                  ->  {"facts": {…}, "reason": "open questions"}

It ends with the socket. It may crash or hang at any time; the parent process has deadlines.
"""

from __future__ import annotations

import ctypes
import json
import os
import resource
import signal
import socket
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rkllm_mcp.diagnostics.probe.experiments import Facts, InconclusiveError
from rkllm_mcp.diagnostics.probe.plan import PLAN
from rkllm_mcp.diagnostics.probe.subject import GREEDY, ProbePictures, ProbePrompts, ProbeSubject
from rkllm_mcp.errors import RkllmMcpError
from rkllm_mcp.generation import ImageTags
from rkllm_mcp.runtime.abi.common import LoadParameters
from rkllm_mcp.runtime.library import open_library

# What a model needs to be mapped (rknn-llm #62)
_OPEN_FILES = 102_400
_PR_SET_PDEATHSIG = 1
# Undocumented defaults of the library
_DEFAULTS = ("max_context_len", "max_new_tokens", "n_keep", "skip_special_token")


def main(descriptor: int) -> None:
    """Serve the watching process on an inherited socket until it goes away."""
    # If the parent dies during a run, the end of the socket would not be noticed.
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    limit = _OPEN_FILES if hard == resource.RLIM_INFINITY else min(hard, _OPEN_FILES)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, limit), hard))
    subject: ProbeSubject | None = None
    prompts = ProbePrompts((), (), (), frozenset())
    with socket.socket(fileno=descriptor) as connection, connection.makefile("rw", encoding="utf-8") as lines:
        for line in lines:
            request: dict[str, Any] = json.loads(line)
            answer: dict[str, Any]
            if "experiment" not in request:
                given, pictures = request["prompts"], request["pictures"]
                ids = {name: tuple(numbers) for name, numbers in given.items()}
                sight = ProbePictures(**pictures) if pictures else None
                prompts = ProbePrompts(ids["question"], ids["other"], ids["filler"], frozenset(ids["stop_ids"]), sight)
                subject, answer = _load(request)
            elif subject is None:
                answer = {"refused": "no model is loaded"}
            else:
                experiment = next(experiment for experiment in PLAN if experiment.name == request["experiment"])
                try:
                    answer = {"facts": {}, "reason": f"the interface of {subject.abi.name} has no such thing"}
                    if experiment.needs(subject.abi):
                        answer = {"facts": experiment.make(subject, prompts), "reason": ""}
                except InconclusiveError as error:
                    answer = {"facts": error.facts, "reason": str(error)}
            lines.write(f"{json.dumps(answer)}\n")
            lines.flush()
        if subject is not None:
            subject.call("rkllm_destroy")
    sys.stdout.flush()
    # The library's own exit handlers have nothing left to do and have been seen to crash.
    os._exit(0)


def _load(request: dict[str, Any]) -> tuple[ProbeSubject | None, dict[str, Any]]:
    try:
        library = open_library(Path(request["library"]), request["abi"])
        began_ns = time.monotonic_ns()
        # Runtimes before 1.3.0 take the tags of pictures here.
        tags = ImageTags(*request["pictures"]["tags"]) if request["pictures"] else None
        subject = ProbeSubject(library, LoadParameters(sampling=GREEDY, image_tags=tags, **request["load"]))
    except RkllmMcpError as error:
        return None, {"refused": str(error)}
    param = library.abi.types["RKLLMParam"].from_buffer_copy(library.default_param)
    defaults = {name: int(getattr(param, name)) for name in _DEFAULTS}
    loaded: Facts = {
        "version": library.version,
        "abi": library.abi.name,
        "emulated": library.file.is_emulator,
        "load_ms": round((time.monotonic_ns() - began_ns) / 1e6, 3),
        "defaults": {**defaults, "embed_flash": int(param.extend_param.embed_flash)},
    }
    return subject, {"loaded": loaded}


def request_for(library: Path, abi: str, load: LoadParameters, prompts: ProbePrompts) -> dict[str, Any]:
    """The first line to send."""
    fields = asdict(load)
    # The subject samples greedily; the tags are those of the pictures.
    del fields["sampling"], fields["image_tags"]
    prompt_fields = {**asdict(prompts), "stop_ids": sorted(prompts.stop_ids)}
    pictures = prompt_fields.pop("pictures")
    return {"library": str(library), "abi": abi, "load": fields, "prompts": prompt_fields, "pictures": pictures}
