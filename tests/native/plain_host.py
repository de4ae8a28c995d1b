"""A chat host in the manner of the ctypes programs people write for librkllmrt: small structs of its own, global state,
one run per line of input. It knows the interface as those programs do, and nothing of this project.

    python plain_host.py LIBRARY FAMILY MODEL < lines > JSON
"""

from __future__ import annotations

import ctypes as c
import json
import sys
from typing import Any


class Extend(c.Structure):
    _fields_ = [
        ("base_domain_id", c.c_int32),
        ("embed_flash", c.c_int8),
        ("enabled_cpus_num", c.c_int8),
        ("enabled_cpus_mask", c.c_uint32),
        ("n_batch", c.c_uint8),
        ("use_cross_attn", c.c_int8),
        ("reserved", c.c_uint8 * 104),
    ]


FAMILY = sys.argv[2]
NEW = FAMILY == "1.3.0"
HEAD = [
    ("model_path", c.c_char_p),
    ("max_context_len", c.c_int32),
    ("max_new_tokens", c.c_int32),
    ("top_k", c.c_int32),
    ("n_keep", c.c_int32),
    ("top_p", c.c_float),
    ("temperature", c.c_float),
    ("repeat_penalty", c.c_float),
    ("frequency_penalty", c.c_float),
    ("presence_penalty", c.c_float),
    ("mirostat", c.c_int32),
    ("mirostat_tau", c.c_float),
    ("mirostat_eta", c.c_float),
    ("skip_special_token", c.c_bool),
]
OLD_TAIL = [("is_async", c.c_bool), ("img_start", c.c_char_p), ("img_end", c.c_char_p), ("img_content", c.c_char_p)]
NEW_TAIL = [("ignore_eos_token", c.c_bool), ("is_async", c.c_bool)]


class Param(c.Structure):
    _fields_ = [*HEAD, *(NEW_TAIL if NEW else OLD_TAIL), ("extend_param", Extend)]


class Union(c.Union):
    _fields_ = [
        ("prompt", c.c_char_p),
        ("room", c.c_uint8 * (144 if NEW else 48 if FAMILY == "1.2.3" else 24)),
        ("align", c.c_void_p),
    ]


class Input(c.Structure):
    _fields_ = [
        *([] if FAMILY == "1.2.0" else [("role", c.c_char_p), ("enable_thinking", c.c_bool)]),
        ("input_type", c.c_int),
        ("data", Union),
    ]


class Infer(c.Structure):
    _fields_ = [
        ("mode", c.c_int),
        ("lora", c.c_void_p),
        ("cache", c.c_void_p),
        *([("sampling", c.c_void_p)] if NEW else []),
        ("keep_history", c.c_int),
        *([("max_new_tokens", c.c_int32)] if NEW else []),
    ]


class Result(c.Structure):
    _fields_ = [
        ("text", c.c_char_p),
        ("token_id", c.c_int32),
        ("hidden", c.c_uint64 * 2),
        ("logits", c.c_uint64 * 2),
        *(
            []
            if FAMILY == "1.2.0"
            else [
                ("prefill_ms", c.c_float),
                ("prefill_tokens", c.c_int),
                ("generate_ms", c.c_float),
                ("generate_tokens", c.c_int),
                ("memory_mb", c.c_float),
            ]
        ),
    ]


answer: list[bytes] = []
states: list[int] = []
figures: list[int] = []


def on_result(result: Any, userdata: Any, state: int) -> int | None:
    states.append(state)
    if state == 0 and result.contents.text is not None:
        answer.append(result.contents.text)
    if state == 2 and FAMILY != "1.2.0":
        figures[:] = [result.contents.prefill_tokens, result.contents.generate_tokens]
    return None if FAMILY == "1.2.0" else 0


CALLBACK = c.CFUNCTYPE(None if FAMILY == "1.2.0" else c.c_int, c.POINTER(Result), c.c_void_p, c.c_int)


class Callbacks(c.Structure):
    _fields_ = [("result", CALLBACK), ("userdata", c.c_void_p), ("others", c.c_void_p * 4)]


def main() -> int:
    library = c.CDLL(sys.argv[1])
    callback = CALLBACK(on_result)
    param = Param(
        model_path=sys.argv[3].encode(),
        max_context_len=2048,
        max_new_tokens=256,
        top_k=1,
        n_keep=-1,
        top_p=0.9,
        temperature=0.8,
        repeat_penalty=1.1,
        mirostat_tau=5.0,
        mirostat_eta=0.1,
        skip_special_token=True,
    )
    param.extend_param.enabled_cpus_num = 4
    param.extend_param.enabled_cpus_mask = 0xF0
    if FAMILY != "1.2.0":
        param.extend_param.n_batch = 1
    handle = c.c_void_p()
    if library.rkllm_init(c.byref(handle), c.byref(param), c.byref(Callbacks(callback)) if NEW else callback) != 0:
        print(json.dumps({"init": "failed"}))
        return 1
    if not handle:
        print(json.dumps({"init": "no handle"}))
        return 1
    for line in sys.stdin.read().splitlines():
        answer.clear()
        states.clear()
        given = Input(input_type=0)
        given.data.prompt = line.encode()
        if FAMILY != "1.2.0":
            given.role = b"user"
        returned = library.rkllm_run(handle, c.byref(given), c.byref(Infer(mode=0, keep_history=1)), None)
        text = b"".join(answer).decode()
        told = {"returned": returned, "text": text, "waiting": states.count(1), "last": states[-1] if states else None}
        print("\n" + json.dumps({**told, "figures": list(figures)}), flush=True)
    return library.rkllm_destroy(handle)


if __name__ == "__main__":
    sys.exit(main())
