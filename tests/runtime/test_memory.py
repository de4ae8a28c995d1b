"""A model that cannot fit is refused with both figures before the runtime sees it, and models share a board."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path

import anyio
import pytest

from rkllm_mcp.errors import MemoryShortError, ModelLoadError
from rkllm_mcp.generation import GenerationOptions, Token
from rkllm_mcp.runtime.abi.common import LoadParameters
from rkllm_mcp.runtime.engine import open_engine
from rkllm_mcp.runtime.settings import DOMAIN_BYTES, EngineSettings, with_domains
from rkllm_mcp.runtime.worker import needed_bytes, require_memory
from tests.support.emulator import IM_END, Emulator, prompt_of

GB = 1_000_000_000


def machine(folder: Path, available_kb: int) -> Path:
    (folder / "proc").mkdir(exist_ok=True)
    (folder / "proc/meminfo").write_text(f"MemTotal: 16000000 kB\nMemFree: 1 kB\nMemAvailable:   {available_kb} kB\n")
    return folder


def model(folder: Path, size: int) -> Path:
    path = folder / "model.rkllm"
    with path.open("wb") as file:
        file.truncate(size)
    return path


def test_a_model_takes_its_weights_and_a_cache_that_grows_with_the_context() -> None:
    assert needed_bytes(2 * GB, 4096) == 2 * GB + 4096 * 28672
    # Qwen3-0.6B: 28 layers with 8 heads of 128 for keys and values.
    assert needed_bytes(GB, 16384, 114_688) == GB + 16384 * 114_688
    assert needed_bytes(1000, 4096) == 2000  # no cache is larger than what it caches for


def test_a_model_that_cannot_fit_is_refused_with_both_figures_and_what_to_do(tmp_path: Path) -> None:
    load = LoadParameters(str(model(tmp_path, 4 * GB)), context_tokens=16384)
    require_memory(load, machine(tmp_path, 5_000_000))
    with pytest.raises(MemoryShortError) as refusal:
        require_memory(load, machine(tmp_path, 3_000_000))
    said = str(refusal.value)
    assert "needs at least 4469 MB with a context of 16384 tokens, and 3072 MB of memory are available" in said
    assert "check_memory = false" in said
    small = LoadParameters(str(model(tmp_path, GB)), context_tokens=16384)
    require_memory(small, machine(tmp_path, 2_000_000))
    with pytest.raises(MemoryShortError, match="needs at least 2879 MB with a context of 16384 tokens"):
        require_memory(replace(small, cache_bytes_per_token=114_688), machine(tmp_path, 2_000_000))


def test_a_model_that_is_not_there_and_a_kernel_that_does_not_say_refuse_nothing(tmp_path: Path) -> None:
    require_memory(LoadParameters(str(tmp_path / "none")), machine(tmp_path, 0))
    require_memory(LoadParameters(str(model(tmp_path, GB))), tmp_path / "none")


@pytest.mark.anyio
async def test_the_check_comes_before_the_runtime_sees_the_model_and_can_be_switched_off(newest: Emulator) -> None:
    huge = model(newest.folder, 10**13)
    for check, kind, said in (
        (True, MemoryShortError, "at least 10000117 MB"),
        (False, ModelLoadError, "did not load .* rkllm_init returned"),
    ):
        async with open_engine(EngineSettings(huge, newest.library, check_memory=check)) as engine:
            with anyio.fail_after(60), pytest.raises(kind, match=said):
                await engine.ready()
            assert engine.supervisor.restarts == 0


def bases_of(folder: Path, sizes: Sequence[int]) -> list[int]:
    """The first domain of each model of these sizes, whose files have no blocks."""
    settings: list[EngineSettings] = []
    for index, size in enumerate(sizes):
        path = folder / f"{index}.rkllm"
        path.touch()
        os.truncate(path, size)
        settings.append(EngineSettings(path))
    return [engine.base_domain_id for engine in with_domains(settings)]


@pytest.mark.parametrize(
    ("sizes", "bases"),
    [([], []), ([GB], [0]), ([GB, GB, GB], [0, 1, 2]), ([9 * GB, GB, DOMAIN_BYTES, 0, 1], [0, 3, 4, 5, 6])],
)
def test_each_model_begins_in_a_domain_that_no_other_fills(tmp_path: Path, sizes: list[int], bases: list[int]) -> None:
    assert bases_of(tmp_path, sizes) == bases


def test_more_models_than_domains_are_refused(tmp_path: Path) -> None:
    assert len(bases_of(tmp_path, [GB] * 16)) == 16
    with pytest.raises(ModelLoadError, match="17 models of 17000 MB need 17 IOMMU domains, and the driver has 16"):
        bases_of(tmp_path, [GB] * 17)


@pytest.mark.anyio
async def test_several_models_run_side_by_side_each_with_a_worker_and_its_own_domain(
    emulator: Emulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RKLLM_EMULATOR_LOG", str(emulator.log))
    names = ("one", "two", "three")
    rules = {name: emulator.model(f"rule\nsay {name} speaking", name=f"{name}.rkllm") for name in names}
    missing = EngineSettings(emulator.folder / "none.rkllm", emulator.library)
    settings = with_domains([*(EngineSettings(path, emulator.library) for path in rules.values()), missing])
    said: dict[str, str] = {}
    async with AsyncExitStack() as stack:
        engines = [await stack.enter_async_context(open_engine(each)) for each in settings[:3]]

        async def ask(name: str, index: int) -> None:
            run = engines[index].generate(prompt_of("x"), GenerationOptions(stop_ids=frozenset({IM_END})))
            said[name] = "".join([item.text async for item in run if isinstance(item, Token)])

        with anyio.fail_after(60):
            async with anyio.create_task_group() as tasks:
                for index, name in enumerate(names):
                    tasks.start_soon(ask, name, index)
        assert len({engine.worker_pid for engine in engines}) == 3
    assert said == {name: f"{name} speaking<|im_end|>" for name in names}
    params = [call["args"]["param"] for call in emulator.calls() if call["call"] == "rkllm_init"]
    assert sorted(param["extend_param"]["base_domain_id"] for param in params) == [0, 1, 2]
    assert settings[3].base_domain_id == 3
