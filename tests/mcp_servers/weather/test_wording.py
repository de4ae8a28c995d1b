from __future__ import annotations

import json

from mcp_servers.weather.wording import WEATHER_CODES, describe_code
from tests.support.fake_jma import cases_folder


def test_an_unknown_code_is_read_by_its_first_digit() -> None:
    assert [describe_code(code) for code in ("199", "299", "399", "499")] == [
        ("晴れ", "sunny"),
        ("くもり", "cloudy"),
        ("雨", "rain"),
        ("雪", "snow"),
    ]
    assert describe_code("999") is None
    assert describe_code("") is None


def test_the_code_table_has_the_agencys_codes_and_means_the_same() -> None:
    agencys = json.loads((cases_folder() / "weather_codes.json").read_text("utf-8"))
    told = {
        code: ja.replace("晴れ", "晴").replace("くもり", "曇").replace("、", "")
        for code, (ja, _) in WEATHER_CODES.items()
    }
    assert told == {code: entry["ja"] for code, entry in agencys.items()}
    assert all(english and english.isascii() for _, english in WEATHER_CODES.values())
