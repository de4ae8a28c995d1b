"""A native model: what comes through the callback, and what the library was really told."""

from __future__ import annotations

import threading
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from ctypes import c_float, pointer
from dataclasses import dataclass, field

import pytest

from rkllm_mcp.errors import ModelLoadError, RunRejectedError
from rkllm_mcp.generation import GenerationOptions
from rkllm_mcp.runtime.abi.common import RKLLM_INFER_GENERATE, RKLLM_INFER_GET_LOGITS, LoadParameters
from rkllm_mcp.runtime.frames import OutputSelection, RunReport
from rkllm_mcp.runtime.library import open_library
from rkllm_mcp.runtime.model import NativeModel, RowsRun
from rkllm_mcp.sampling import Sampling
from tests.support.emulator import IM_END, Emulator, prompt_of

SAY = "rule\nsay {}"
GREEDY = Sampling(
    temperature=0.5, top_k=1, top_p=0.25, repeat_penalty=1.5, frequency_penalty=0.5, presence_penalty=-0.5
)


@dataclass
class Heard:
    """What the callback handed over."""

    ids: list[int] = field(default_factory=list[int])
    pieces: list[bytes] = field(default_factory=list[bytes])

    def on_token(self, token_id: int, text: bytes, entered_ns: int) -> None:
        assert entered_ns > 0
        self.ids.append(token_id)
        self.pieces.append(text)


@contextmanager
def loaded(
    emulator: Emulator, rules: str, head: str = "speed flat\ncontext 4096", **changes: object
) -> Generator[NativeModel, None, None]:
    parameters = {"context_tokens": 512, "max_new_tokens": 400, "sampling": Sampling(), **changes}
    load = LoadParameters(str(emulator.model(rules, head)), **parameters)  # pyright: ignore[reportArgumentType]
    model = NativeModel(open_library(emulator.library), load)
    try:
        yield model
    finally:
        model.destroy()


def run(model: NativeModel, text: str = "hello", limit: int = 400) -> tuple[Heard, RunReport]:
    heard = Heard()
    return heard, model.new_run(prompt_of(text), heard.on_token, GenerationOptions(limit)).execute()


def test_a_run_delivers_every_token_with_its_bytes(emulator: Emulator) -> None:
    with loaded(emulator, SAY.format("a東")) as model:
        heard, report = run(model)
    assert heard.ids == [*"a東".encode(), IM_END]
    # A character's first bytes come as WAITING, without text; the last one brings the whole.
    assert heard.pieces == [b"a", b"", b"", "東".encode(), b"<|im_end|>"]
    assert report.first_ns > 0


def test_the_cache_holds_prompt_and_answer_but_for_the_last_token(emulator: Emulator) -> None:
    with loaded(emulator, SAY.format("ab")) as model:
        run(model)
        size = model.kv_cache_size()
        model.clear_kv_cache()
        cleared = model.kv_cache_size()
    expected = (None, None) if emulator.version == "1.2.0" else (len(prompt_of("hello")) + 3 - 1, 0)
    assert (size, cleared) == expected


def test_a_token_without_text_is_a_token_all_the_same(emulator: Emulator) -> None:
    with loaded(emulator, SAY.format("abc") + "\nfault null-text at 2") as model:
        heard, _ = run(model)
    assert heard.ids == [*b"abc", IM_END]
    assert heard.pieces == [b"a", b"", b"c", b"<|im_end|>"]


def test_a_finish_without_text_is_a_finish_all_the_same(emulator: Emulator) -> None:
    with loaded(emulator, SAY.format("ab") + "\nfault finish-text null") as model:
        heard, _ = run(model)
    assert heard.ids == [*b"ab", IM_END]


@pytest.mark.parametrize("fault", ["skipped-token null", "skipped-token empty", "skipped-token silent"])
def test_the_library_can_leave_out_special_tokens(emulator: Emulator, fault: str) -> None:
    with loaded(emulator, SAY.format("ab") + f"\nfault {fault}", skip_special_token=True) as model:
        heard, _ = run(model)
    assert b"".join(heard.pieces) == b"ab"


@pytest.mark.parametrize("thread", ["library", "calling"])
def test_callbacks_may_come_on_any_thread(emulator: Emulator, thread: str) -> None:
    with loaded(emulator, SAY.format("ab") + f"\nfault callback-thread {thread}") as model:
        for _ in range(3):
            heard, _ = run(model)
            assert heard.ids == [*b"ab", IM_END]


def test_threads_that_never_hear_of_an_end_are_harmless_and_so_are_those_after_them(emulator: Emulator) -> None:
    with loaded(emulator, "fault after-abort nothing\n" + SAY.format("abcdef")) as model:
        for _ in range(100):
            aborted = model.new_run(prompt_of("hello"), Heard().on_token, GenerationOptions(400))
            aborting = threading.Thread(target=aborted.abort)
            aborting.start()
            aborted.execute()
            aborting.join()
        heard, _ = run(model)
    assert heard.ids == [*b"abcdef", IM_END]


def test_a_consumer_that_raises_ends_the_run_and_the_next_one_works(emulator: Emulator) -> None:
    def raising(_token_id: int, _text: bytes, _entered_ns: int) -> None:
        raise ValueError("broken consumer")

    with loaded(emulator, SAY.format("a" * 300)) as model:
        with pytest.raises(RunRejectedError, match=r"could not be handed over \(ValueError\('broken consumer'\)\)"):
            model.new_run(prompt_of("hello"), raising, GenerationOptions(400)).execute()
        heard, _ = run(model, limit=400)
    assert len(heard.ids) == 301


def test_an_abort_before_the_run_means_that_it_never_happens(emulator: Emulator) -> None:
    heard = Heard()
    with loaded(emulator, SAY.format("ab")) as model:
        aborted = model.new_run(prompt_of("hello"), heard.on_token, GenerationOptions(400))
        aborted.abort()
        assert aborted.execute() == RunReport()
    assert heard.ids == []


@pytest.mark.parametrize("after", ["finish", "error", "nothing"])
def test_an_aborted_run_ends_without_an_error_for_every_code_of_the_runtime(emulator: Emulator, after: str) -> None:
    heard, enough = Heard(), threading.Event()

    def on_token(token_id: int, text: bytes, entered_ns: int) -> None:
        heard.on_token(token_id, text, entered_ns)
        enough.set()

    head = f"speed prefill 100000 decode 200\ncontext 4096\nfault after-abort {after}"
    with loaded(emulator, f"rule\nuser bye\nsay bye\nrule\nsay {'x' * 380}", head) as model:
        aborted = model.new_run(prompt_of("hello"), on_token, GenerationOptions(400))
        thread = threading.Thread(target=aborted.execute)
        thread.start()
        assert enough.wait(60)
        aborted.abort()
        thread.join(60)
        assert not thread.is_alive()
        assert 0 < len(heard.ids) < 380
        after_it, _ = run(model, "bye")
    assert after_it.ids == [*b"bye", IM_END]


def test_an_error_callback_rejects_the_run_also_where_the_status_is_success(emulator: Emulator) -> None:
    enough = threading.Event()

    def on_token(_token_id: int, _text: bytes, _entered_ns: int) -> None:
        enough.set()

    head = "speed prefill 100000 decode 200\ncontext 4096\nfault after-abort error\nfault abort-return 0"
    with loaded(emulator, SAY.format("x" * 380), head) as model, ThreadPoolExecutor(1) as pool:
        run = model.new_run(prompt_of("hello"), on_token, GenerationOptions(400))
        report = pool.submit(run.execute)
        assert enough.wait(60)
        # Not the run's own abort, after which an error would be expected.
        model.functions.rkllm_abort(model.handle)
        with pytest.raises(RunRejectedError, match="reported an error in the middle of the answer"):
            report.result(60)


def test_an_abort_after_the_run_does_not_touch_the_next_one(emulator: Emulator) -> None:
    with loaded(emulator, SAY.format("ab")) as model:
        heard = Heard()
        over = model.new_run(prompt_of("hello"), heard.on_token, GenerationOptions(400))
        over.execute()
        over.abort()
        assert run(model)[0].ids == [*b"ab", IM_END]


@pytest.mark.parametrize("fault", ["init-fails", "init-null-handle"])
def test_a_model_that_does_not_load_is_an_error_also_when_the_status_is_success(emulator: Emulator, fault: str) -> None:
    with pytest.raises(ModelLoadError, match=r"did not load .*model\.rkllm: "), loaded(emulator, f"fault {fault}"):
        pass


def test_destroying_twice_is_harmless(emulator: Emulator) -> None:
    with loaded(emulator, SAY.format("a")) as model:
        model.destroy()


def test_the_library_received_the_values_that_python_passed(
    emulator: Emulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RKLLM_EMULATOR_LOG", str(emulator.log))
    prompt = prompt_of("hello")
    with loaded(
        emulator, SAY.format("ab"), sampling=GREEDY, cpus=(4, 5, 6, 7), base_domain_id=3, embed_flash=False
    ) as model:
        sampled = model.new_run(prompt, Heard().on_token, GenerationOptions(7, sampling=Sampling(top_k=2, top_p=0.5)))
        sampled.execute()
        model.new_run(prompt, Heard().on_token, GenerationOptions(8)).execute()
        model.kv_cache_size()
        model.clear_kv_cache()

    has_size = emulator.version != "1.2.0"
    calls = emulator.calls()
    assert [(call["call"], call["return"]) for call in calls if call["call"] != "rkllm_createDefaultParam"] == [
        ("rkllm_init", 0),
        ("rkllm_run", 0),
        ("rkllm_run", 0),
        *([("rkllm_get_kv_cache_size", 0)] if has_size else []),
        ("rkllm_clear_kv_cache", 0),
        ("rkllm_destroy", 0),
    ]
    init, first, second = (call["args"] for call in calls if call["call"] in ("rkllm_init", "rkllm_run"))
    param = init["param"]
    assert {name: param[name] for name in ("max_context_len", "max_new_tokens", "top_k", "n_keep")} == {
        "max_context_len": 512,
        "max_new_tokens": 400,
        "top_k": 1,
        "n_keep": -1,
    }
    assert (param["temperature"], param["top_p"], param["repeat_penalty"]) == (0.5, 0.25, 1.5)
    assert (param["frequency_penalty"], param["presence_penalty"], param["mirostat"]) == (0.5, -0.5, 0)
    assert (param["skip_special_token"], param["is_async"]) == (False, False)
    extend = param["extend_param"]
    assert (extend["base_domain_id"], extend["embed_flash"]) == (3, 0)
    assert (extend["enabled_cpus_mask"], extend["enabled_cpus_num"]) == (0xF0, 4)
    for arguments in (first, second):
        assert (arguments["input"]["input_type"], arguments["input"]["input_ids"]) == (1, prompt)
        assert arguments["infer"]["keep_history"] == 0
    if emulator.version == "1.3.0":
        assert (first["infer"]["max_new_tokens"], second["infer"]["max_new_tokens"]) == (7, 8)
        assert first["infer"]["sampling_params"]["top_k"] == 2
        assert second["infer"]["sampling_params"] is None


def test_rows_after_the_prompts_are_of_generated_tokens_and_end_the_run(
    emulator: Emulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RKLLM_EMULATOR_LOG", str(emulator.log))
    with loaded(emulator, SAY.format("a")) as model:
        rows = OutputSelection("all", mode=RKLLM_INFER_GET_LOGITS)
        run = model.new_run(prompt_of("hello"), Heard().on_token, GenerationOptions(0), rows=rows)
        assert isinstance(run, RowsRun)
        types, values = model.abi.types, (c_float * 6)(1, 2, 3, 4, 5, 6)
        none = types["RKLLMResult"]()
        prompts = types["RKLLMResult"](logits=types["RKLLMResultLogits"](values, 3, 2))
        generated = types["RKLLMResult"](logits=types["RKLLMResultLogits"](values, 3, 1))
        told = [run.on_result(pointer(result), 0, 1) for result in (none, prompts, generated)]
        for thread in threading.enumerate():
            if thread.name.startswith("rkllm-abort"):
                thread.join(60)
        assert run.execute() == RunReport()
    # Only the rows that were just read may be dropped, and only where the family can.
    assert told == [0, 2 if emulator.version == "1.3.0" else 0, 0]
    assert run.rows == (3, 2, bytes(values))
    assert "rkllm_run" not in [call["call"] for call in emulator.calls()]


def test_a_model_that_gives_no_rows_is_an_error(emulator: Emulator) -> None:
    with loaded(emulator, SAY.format("a")) as model:
        run = model.new_run(
            prompt_of("hello"), Heard().on_token, GenerationOptions(5), rows=OutputSelection(mode=RKLLM_INFER_GENERATE)
        )
        with pytest.raises(RunRejectedError, match="gave no hidden states for this model"):
            run.execute()
