from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import Client, StdioServerParameters

from mcp_servers.weather.__main__ import main
from mcp_servers.weather.server import create_server
from mcp_servers.weather.settings import clock_from, settings_from
from tests.support.fake_jma import NOW_IN_CASES, FakeAgency, cases_folder
from tests.support.shared import REPOSITORY
from tests.support.weather_calls import call


@pytest.mark.anyio
async def test_the_saved_responses_are_answered_by_a_process(tmp_path: Path) -> None:
    with FakeAgency(cases_folder()) as fake, anyio.fail_after(60):
        process = StdioServerParameters(
            command=sys.executable, args=["-m", "mcp_servers.weather"], cwd=REPOSITORY, env=fake.environment(tmp_path)
        )
        async with Client(process) as client:
            assert {tool.name for tool in (await client.list_tools()).tools} == {
                "get_weather",
                "get_forecast",
                "find_area",
            }
            answer = await call(client, "get_weather", location="東京")
            ambiguous = await call(client, "get_weather", location="府中市")
    assert (tmp_path / "rkllm-mcp" / "weather").is_dir()
    assert NOW_IN_CASES.startswith(answer.structured["days"][0]["date"])
    assert answer.structured["summary"] == (
        "東京地方の今夜(1月5日)の天気は晴れ、夜遅くくもり、降水確率は10%、"
        "明日(1月6日)は晴れ、朝晩くもり、最高気温11度、最低気温2度、降水確率は0%です。"
    )
    assert answer.structured["publishing_office"] == "気象庁"
    assert ambiguous.structured["candidates"] == ["東京都府中市", "広島県府中市"]


@pytest.mark.anyio
async def test_without_a_network_the_sample_answers_and_says_so_if_it_is_asked_for(tmp_path: Path) -> None:
    said: dict[str, list[tuple[bool, str]]] = {"": [], "1": []}
    for sample, answers in said.items():
        env = {"JMA_BASE_URL": "http://127.0.0.1:9", "XDG_CACHE_HOME": str(tmp_path), "WEATHER_SAMPLE": sample}
        with anyio.fail_after(60):
            async with Client(create_server(settings_from(env), clock_from(env))) as client:
                for place in ("八王子市", "大阪"):
                    answer = await call(client, "get_weather", location=place)
                    content: dict[str, Any] = answer.structured or {}
                    text = content.get("summary") or answer.text.partition(" / ")[0]
                    answers.append((content.get("sample", False), text))
    failure = "気象庁のサーバー(127.0.0.1:9)に接続できないため、天気を取得できません。"
    advice = "ネットワーク接続を確認して、もう一度試してください。"
    sample = (
        "気象庁に接続できないため、デモ用の見本で答えます。"
        "2026年1月5日17時に気象庁が発表した予報で、現在の予報ではありません。"
        "八王子市（東京地方）の1月5日(月)の天気は晴れ、夜遅くくもり、降水確率は10%、"
        "1月6日(火)は晴れ、朝晩くもり、最高気温11度、最低気温2度、降水確率は0%です。"
    )
    assert said == {
        "": [(False, f"{failure}{advice}")] * 2,
        "1": [(True, sample), (False, f"{failure}付属の見本にあるのは東京都の予報だけです。{advice}")],
    }


def test_a_wrong_variable_is_refused_with_advice_before_anything_starts() -> None:
    finished = subprocess.run(
        [sys.executable, "-m", "mcp_servers.weather"],
        cwd=REPOSITORY,
        env={"WEATHER_NOW": "noon"},
        capture_output=True,
        text=True,
        timeout=120,
        stdin=subprocess.DEVNULL,
        check=False,
    )
    assert finished.returncode == 2
    assert finished.stderr == ("WEATHER_NOW is 'noon': give a time with its offset, like 2026-11-21T18:00:00+09:00.\n")
    assert finished.stdout == ""


def test_the_program_says_its_version(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        main(["--version"])
    assert left.value.code == 0
    assert capsys.readouterr().out.strip()


def test_the_server_imports_nothing_of_the_assistant() -> None:
    code = "import sys, mcp_servers.weather.server; print([m for m in sys.modules if m.startswith('rkllm_mcp')])"
    finished = subprocess.run(
        [sys.executable, "-c", code], cwd=REPOSITORY, capture_output=True, text=True, timeout=120, check=True
    )
    assert finished.stdout == "[]\n"
