"""What others reported of the runtime on their boards, as switches of the emulator, each tried both ways."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from array import array
from collections.abc import Sequence
from contextlib import aclosing
from pathlib import Path

import anyio
import pytest

from rkllm_mcp.errors import PromptTooLongError, WorkerDiedError
from rkllm_mcp.generation import GenerationOptions, ImageInput, ImageTags, RunStats
from rkllm_mcp.runtime.engine import Engine, open_engine
from rkllm_mcp.runtime.prompt_cache import CacheWarmUp, tokens_in_file
from tests.runtime.test_prompt_caches import HEAD, start
from tests.support.emulator import IM_END, Emulator, libraries, prompt_of

pytestmark = pytest.mark.anyio

RULES = f"rule\nsay {'word ' * 40}"


async def saved_by_an_aborted_run(engine: Engine, path: Path) -> None:
    """Leave an answer that saves its prompt after its first token."""
    options = GenerationOptions(40, save_prompt_cache=str(path))
    with anyio.fail_after(60):
        async with aclosing(engine.generate(prompt_of("count"), options)) as run:
            async for _ in run:
                break


async def test_an_aborted_run_writes_its_file_and_loading_it_kills_that_process_only(newest: Emulator) -> None:
    path = newest.folder / "aborted.bin"
    slow = "speed prefill 20000 decode 400\ncontext 4096\nfault aborted-save"
    async with open_engine(newest.settings(RULES, f"{slow} nothing")) as engine:
        await saved_by_an_aborted_run(engine, path)
        assert not path.exists()
    async with open_engine(newest.settings(RULES, f"{slow} file")) as engine:
        await saved_by_an_aborted_run(engine, path)
        await engine.load_prompt_cache(path)
        assert engine.supervisor.restarts == 0
    path.unlink()
    async with open_engine(newest.settings(RULES, f"{slow} trap")) as engine:
        await saved_by_an_aborted_run(engine, path)
        with pytest.raises(WorkerDiedError):
            await engine.load_prompt_cache(path)
        # In the next process it works, as was reported.
        await engine.load_prompt_cache(path)


@pytest.mark.parametrize("fault", ["aborted-save nothing", "aborted-save trap"])
async def test_what_a_question_left_of_a_run_that_saves_is_never_kept(newest: Emulator, fault: str) -> None:
    slow = f"speed prefill 2000 decode 200\ncontext 4096\nfault {fault}"
    async with start(newest, slow) as first:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(first.warm_up)
            await first.ask()
        kept = [path for path in newest.folder.rglob("*") if path.is_file() and path.name == "manifest.json"]
    async with start(newest, slow) as second:
        await second.warm_up()
        await second.ask()
        assert second.engine.supervisor.restarts == 0
    # What was kept was written by a run that ended.
    assert len(kept) in {0, 1}


@pytest.mark.parametrize("fault", ["nothing", "file", "trap"])
async def test_the_file_of_a_run_that_a_question_aborts_is_discarded_and_the_next_one_is_kept_and_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    """Before 1.3.0 a run that saves goes on until the model ends, and a question ends it."""
    older = Emulator("1.2.3", libraries()["1.2.3"], tmp_path)
    monkeypatch.setenv("RKLLM_EMULATOR_LOG", str(older.log))
    rules = "rule\nuser ^Hi$\nsay Hi\nrule\nsay So it begins.\nfault hang after 3"
    async with start(older, f"speed flat\ncontext 4096\nfault aborted-save {fault}", rules=rules) as opened:
        aborted: list[int] = []
        with anyio.fail_after(60):
            while not aborted:
                warm_up = CacheWarmUp(opened.engine, opened.caches)
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(warm_up.run, HEAD)
                    while opened.engine.is_idle:
                        await anyio.lowlevel.checkpoint()
                    # An abort before the first token leaves no file on any runtime.
                    await anyio.sleep(0.05)
                    warm_up.give_way()
                await opened.ask()
                runs = [call["run"] for call in older.calls() if call["call"] == "rkllm_run"]
                aborted = [len(run["sampled"]) for run in runs if run["end"] == "aborted"]
        assert (aborted, [*(tmp_path / "prompts").iterdir()]) == ([3], [])
        assert opened.said == []
        # The same prompt with a question behind it ends by itself: its file is kept, and read in the same process.
        assert await opened.caches.save([*HEAD, *prompt_of("Hi")])
        await opened.engine.clear_cache()
        assert await opened.caches.load([*HEAD, *prompt_of("Hi")])
        await opened.ask()
        assert opened.engine.supervisor.restarts == 0


@pytest.mark.parametrize("fault", ["over-long return", "over-long callback", "over-long crash"])
async def test_a_prompt_that_is_too_long_is_refused_before_a_runtime_that_refuses_it_badly_sees_it(
    emulator: Emulator, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    monkeypatch.setenv("RKLLM_EMULATOR_LOG", str(emulator.log))
    rules, head = "rule\nuser (.+)\nsay $1", f"speed flat\ncontext 4096\nfault {fault}"
    async with open_engine(emulator.settings(rules, head, context_tokens=64)) as engine:
        longest = "x" * (63 - len(prompt_of("")))
        assert await said_of(engine, prompt_of(longest))
        with pytest.raises(PromptTooLongError):
            await said_of(engine, prompt_of(f"{longest}x"))
        assert await said_of(engine, prompt_of("next")) == "next<|im_end|>"
        assert engine.supervisor.restarts == 0
    runs = [call["run"] for call in emulator.calls() if call["call"] == "rkllm_run"]
    assert [len(run["prompt"]) for run in runs] == [63, len(prompt_of("next"))]


async def said_of(engine: Engine, prompt: Sequence[int] | ImageInput) -> str:
    options = GenerationOptions(stop_ids=frozenset({IM_END}))
    with anyio.fail_after(60):
        async with aclosing(engine.generate(prompt, options)) as run:
            return "".join([part.text async for part in run if not isinstance(part, RunStats)])


@pytest.mark.parametrize("fault", ["run-async returns", "run-async hangs", "run-async silent"])
async def test_answers_and_their_cancellation_need_no_asynchronous_run(
    emulator: Emulator, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    monkeypatch.setenv("RKLLM_EMULATOR_LOG", str(emulator.log))
    head = f"speed prefill 100000 decode 200\ncontext 4096\nfault {fault}"
    async with open_engine(emulator.settings(RULES, head)) as engine:
        with anyio.fail_after(60):
            async with aclosing(engine.generate(prompt_of("left"), GenerationOptions())) as run:
                await anext(run)
        assert await said_of(engine, prompt_of("next")) == f"{'word ' * 40}".strip() + "<|im_end|>"
        assert engine.supervisor.restarts == 0
    called = [call["call"] for call in emulator.calls()]
    assert (called.count("rkllm_run"), called.count("rkllm_run_async")) == (2, 0)


@pytest.mark.parametrize("fault", ["reuse always", "history-stays"])
async def test_what_ran_with_history_is_never_in_front_of_a_later_prompt(newest: Emulator, fault: str) -> None:
    """An image is evaluated with history, because 1.3.0 loses memory with each one without."""
    head = f"speed flat\ncontext 4096\nhidden 8\ntemplate chatml\nfault {fault}"
    image = ImageInput("<image>what?", array("f", [0.5] * 16), 2, tags=ImageTags("[", "]", "#"))
    async with open_engine(newest.settings("rule\nuser (.+)\nsay $1", head)) as engine:
        for _ in range(2):
            assert await said_of(engine, prompt_of("one")) == "one<|im_end|>"
            # The prompt, and the answer without its last token.
            assert await engine.kv_cache_size() == len(prompt_of("one")) + len("one")
            assert (await said_of(engine, image)).endswith("what?<|im_end|>")


@pytest.mark.parametrize(("fault", "is_cut"), [("abort-late 0", False), ("abort-in-prefill", True)])
async def test_a_question_that_is_left_while_its_prompt_is_read_harms_no_later_one(
    newest: Emulator, monkeypatch: pytest.MonkeyPatch, fault: str, is_cut: bool
) -> None:
    monkeypatch.setenv("RKLLM_EMULATOR_LOG", str(newest.log))
    head = f"speed prefill 1000 decode 2000\ncontext 4096\nfault {fault}"
    long = "long " * 200
    async with open_engine(newest.settings("rule\nuser (.+)\nsay $1", head, leave_timeout_s=0.0)) as engine:
        await engine.ready()
        with anyio.move_on_after(0.3):
            await said_of(engine, prompt_of(long))
        assert await said_of(engine, prompt_of("next")) == "next<|im_end|>"
        assert engine.supervisor.restarts == 0
    left, _ = (call["run"] for call in newest.calls() if call["call"] == "rkllm_run")
    assert (left["end"], left["kv_cache_size"] < len(prompt_of(long))) == ("aborted", is_cut)


@pytest.mark.parametrize(("fault", "uncached"), [("last-token uncached", 1), ("last-token cached", 0)])
async def test_a_second_turn_is_right_if_the_last_sampled_token_is_in_the_cache_and_if_not(
    newest: Emulator, fault: str, uncached: int
) -> None:
    first, said = prompt_of("one"), f"{'word ' * 40}".strip()
    # The answer as it was sampled, with the token that ended it.
    after = [*first, *said.encode(), IM_END]
    tail = [*b"\n", *prompt_of("two")]
    options = GenerationOptions(stop_ids=frozenset({IM_END}))
    async with open_engine(newest.settings(RULES, f"speed flat\ncontext 4096\nfault {fault}")) as engine:
        runs: list[tuple[str, RunStats]] = []
        for prompt in (first, [*after, *tail]):
            text = ""
            with anyio.fail_after(60):
                async with aclosing(engine.generate(prompt, options)) as run:
                    async for part in run:
                        if isinstance(part, RunStats):
                            runs.append((text, part))
                        else:
                            text += part.text
    assert [text for text, _ in runs] == [f"{said}<|im_end|>"] * 2
    assert runs[1][1].prefilled_tokens == len(tail) + uncached


@pytest.mark.parametrize("fault", ["rows-finish finish", "rows-finish nothing"])
async def test_rows_are_complete_with_finish_and_without(emulator: Emulator, fault: str) -> None:
    head = f"speed flat\ncontext 4096\nhidden 8\nfault {fault}"
    async with open_engine(emulator.settings(RULES, head)) as engine:
        with anyio.fail_after(60):
            (hidden,) = await engine.embed([prompt_of("one")])
            logits = await engine.logits(prompt_of("one"))
    assert (len(hidden), len(logits) > 100) == (8, True)


_WITH_HISTORY = """
import sys
from pathlib import Path
from rkllm_mcp.diagnostics.probe.subject import GREEDY, ProbeSubject
from rkllm_mcp.runtime.abi.common import RKLLM_INFER_GET_LOGITS, LoadParameters
from rkllm_mcp.runtime.library import open_library
load = LoadParameters(sampling=GREEDY, model_path=sys.argv[2], context_tokens=4096, max_new_tokens=8)
subject = ProbeSubject(open_library(Path(sys.argv[1])), load)
subject.run([72, 105], 1, mode=RKLLM_INFER_GET_LOGITS, keep_history=sys.argv[3] == "history")
print("alive")
"""


@pytest.mark.parametrize(
    ("fault", "history", "expected"),
    [
        ("logits-cache kept", "history", (0, True)),
        ("logits-history-dies", "history", (-signal.SIGABRT, False)),
        ("logits-history-dies", "none", (0, True)),
    ],
)
def test_a_run_for_logits_with_history_ends_the_process_where_that_was_reported(
    newest: Emulator, fault: str, history: str, expected: tuple[int, bool]
) -> None:
    model = newest.settings(RULES, f"speed flat\ncontext 4096\nfault {fault}").model_path
    words = [sys.executable, "-c", _WITH_HISTORY, str(newest.library), str(model), history]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, "alive" in done.stdout) == expected, done.stderr


async def test_the_product_asks_for_logits_without_history(newest: Emulator) -> None:
    head = "speed flat\ncontext 4096\nfault logits-history-dies"
    async with open_engine(newest.settings(RULES, head)) as engine:
        with anyio.fail_after(60):
            assert [len(await engine.logits(prompt_of("one"))) > 100 for _ in range(2)] == [True, True]
        assert engine.supervisor.restarts == 0


@pytest.mark.parametrize(("layout", "is_proven"), [("own", False), ("reported", True)])
async def test_a_file_that_names_its_tokens_is_believed_without_a_trial(
    emulator: Emulator, layout: str, is_proven: bool
) -> None:
    head = f"speed flat\ncontext 4096\nfault cache-file {layout}"
    async with start(emulator, head) as first:
        await first.warm_up()
        await first.ask()
    (manifest,) = emulator.folder.rglob("manifest.json")
    (file,) = (path for path in manifest.parent.iterdir() if path != manifest)
    assert (tokens_in_file(file) == tuple(HEAD)) is is_proven
    assert json.loads(manifest.read_text("utf-8"))["is_proven"] is is_proven
    async with start(emulator, head) as second:
        await second.warm_up()
        stats = await second.ask()
    assert stats.prefilled_tokens is None or stats.prefilled_tokens < len(HEAD) / 20


@pytest.mark.parametrize(
    ("words", "ids"),
    [
        ([0, 8, 3, 151644, 8948, 198], (151644, 8948, 198)),
        ([0, 8, 3, 151644, 8948], None),
        ([0, 8, 0], None),
        ([0, 8, 2**31, 1], None),
        ([0, 9, 1, 5], None),
        ([1, 8, 1, 5], None),
        ([0, 8], None),
    ],
)
def test_a_header_is_read_only_if_it_is_the_reported_one(
    tmp_path: Path, words: list[int], ids: tuple[int, ...] | None
) -> None:
    path = tmp_path / "cache.bin"
    path.write_bytes(array("I", words).tobytes())
    assert tokens_in_file(path) == ids
    assert tokens_in_file(tmp_path / "none") is None
