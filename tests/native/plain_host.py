"""A chat host in the manner of the ctypes programs people write for librkllmrt: small structs of its own, global state,
one run per line of input. It knows the interface as those programs do, and nothing of this project.

    python plain_host.py LIBRARY FAMILY MODEL... < lines > JSON

Every model is opened in turn and the last one asked. A line is a question, or one of the calls that Rockchip's
example server makes in addition: ``/single`` (from here on no history, and every run on its own thread),
``/lora FILE``, ``/tools JSON``, ``/tool JSON`` (the results), ``/clear``, ``/abort``, ``/close`` (twice, as that server
does when it is interrupted); and ``/async TEXT``.
"""

from __future__ import annotations

import ctypes as c
import json
import sys
import threading
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
NEW = FAMILY in ("1.3.0", "1.3.1")
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


class Adapter(c.Structure):
    _fields_ = [("path", c.c_char_p), ("name", c.c_char_p), ("scale", c.c_float)]


class AdapterName(c.Structure):
    _fields_ = [("name", c.c_char_p)]


class Sampling(c.Structure):
    _fields_ = [
        ("top_k", c.c_int32),
        ("top_p", c.c_float),
        ("temperature", c.c_float),
        ("repeat_penalty", c.c_float),
        ("frequency_penalty", c.c_float),
        ("presence_penalty", c.c_float),
        ("mirostat", c.c_int32),
        ("mirostat_tau", c.c_float),
        ("mirostat_eta", c.c_float),
    ]


class Union(c.Union):
    _fields_ = [
        ("prompt", c.c_char_p),
        ("room", c.c_uint8 * {"1.2.0": 24, "1.2.3": 48, "1.3.0": 144, "1.3.1": 192}[FAMILY]),
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


library = c.CDLL(sys.argv[1])
callback = CALLBACK(on_result)
callbacks = Callbacks(callback)
handle = c.c_void_p()
infer = Infer(mode=0, keep_history=1)
adapter_name = AdapterName(b"test")
sampling = Sampling(1, 0.9, 0.8, 1.1, 0.0, 0.0, 0, 5.0, 0.1)


def open_model(path: str) -> bool:
    param = Param(
        model_path=path.encode(),
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
    param.extend_param.embed_flash = 1
    param.extend_param.enabled_cpus_num = 4
    param.extend_param.enabled_cpus_mask = 0xF0
    if FAMILY != "1.2.0":
        param.extend_param.n_batch = 1
    given = c.byref(callbacks) if NEW else callback
    if library.rkllm_init(c.byref(handle), c.byref(param), given) != 0:
        print(json.dumps({"init": "failed"}), flush=True)
    elif not handle:
        print(json.dumps({"init": "no handle"}), flush=True)
    return bool(handle)


def input_of(role: bytes, text: str) -> Input:
    given = Input(input_type=0)
    given.data.prompt = text.encode()
    if FAMILY != "1.2.0":
        given.role = role
    return given


def run(role: bytes, text: str) -> int:
    given = input_of(role, text)
    returned: list[int] = []
    if infer.keep_history:
        return library.rkllm_run(handle, c.byref(given), c.byref(infer), None)
    if NEW:
        infer.sampling = c.addressof(sampling)
        infer.max_new_tokens = 128
    worker = threading.Thread(
        target=lambda: returned.append(library.rkllm_run(handle, c.byref(given), c.byref(infer), None))
    )
    worker.start()
    worker.join()
    return returned[0]


def use_adapter(path: str) -> int:
    infer.lora = c.addressof(adapter_name)
    return library.rkllm_load_lora(handle, c.byref(Adapter(path.encode(), b"test", 1.0)))


def clear() -> int:
    return library.rkllm_clear_kv_cache(handle, 1, *(() if FAMILY == "1.2.0" else (None, None)))


def close() -> int:
    library.rkllm_destroy(handle)
    return library.rkllm_destroy(handle)


def obey(line: str) -> int:
    word, _, rest = line.partition(" ")
    if word == "/single":
        infer.keep_history = 0
        return 0
    if word == "/lora":
        return use_adapter(rest)
    if word == "/tools":
        return library.rkllm_set_function_tools(handle, b"You help.", rest.encode(), b"tool_response")
    if word == "/async":
        return library.rkllm_run_async(handle, c.byref(input_of(b"user", rest)), c.byref(infer), None)
    plain = {"/clear": clear, "/close": close, "/abort": lambda: library.rkllm_abort(handle)}
    if word in plain:
        return plain[word]()
    return run(b"tool", rest) if word == "/tool" else run(b"user", line)


def main() -> int:
    if not [open_model(path) for path in sys.argv[3:]][-1]:
        return 1
    lines = sys.stdin.read().splitlines()
    for line in lines:
        answer.clear()
        states.clear()
        returned = obey(line)
        text = b"".join(answer).decode()
        told = {"returned": returned, "text": text, "waiting": states.count(1), "last": states[-1] if states else None}
        print("\n" + json.dumps({**told, "figures": list(figures)}), flush=True)
    return 0 if "/close" in lines else library.rkllm_destroy(handle)


if __name__ == "__main__":
    sys.exit(main())
