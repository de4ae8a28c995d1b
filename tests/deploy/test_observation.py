"""The dashboard and the alerts ask for what ``/metrics`` of a running service really has."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
import yaml
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from rkllm_mcp.app.gauges import Gauges
from rkllm_mcp.surfaces.http.board import Moment
from tests.support.served import Served, scripted_model, served
from tests.support.shared import REPOSITORY

PROMETHEUS = REPOSITORY / "deploy" / "prometheus"
DASHBOARD = REPOSITORY / "deploy" / "grafana" / "rkllm-mcp.json"
RULES = """
rule
  user calculate
  results 0
  call calculator {"expression": "1+2"}

rule
  user fail
  say one
  fault error after 0

rule
  say I see.
"""
CALCULATOR = '[[servers]]\nname = "own"\ntransport = "builtin"\ntools = [{ name = "calculator" }]\n'
# A board with everything that this machine may lack.
BOARD = Gauges(npu_load=(10, 20, 30), temperature_c=50.0, memory_total=8 * 2**30, memory_available=4 * 2**30)
# What Prometheus adds to every sample.
ADDED = {"instance", "job", "severity", "alertname"}


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Generator[Served, None, None]:
    """A service that has answered, called a tool and failed."""
    folder = tmp_path_factory.mktemp("observed")
    with served(folder / "home", scripted_model(folder / "model", RULES), extra=CALCULATOR) as it:
        for question in ("calculate", "fail", "hello"):
            httpx2.post(f"{it.url}/v1/execute", json={"message": question}, timeout=120).raise_for_status()
        yield it


@pytest.fixture(scope="module")
def exposed(service: Served) -> dict[str, set[str]]:
    """Every name of a sample, and its labels."""
    assert service.service is not None
    board = CollectorRegistry()
    board.register(Moment(service.service, lambda: BOARD))
    texts = httpx2.get(f"{service.url}/metrics", timeout=120).text, generate_latest(board).decode()
    names: dict[str, set[str]] = {}
    for text in texts:
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                names.setdefault(sample.name, set()).update(sample.labels)
    return names


def dashboard_expressions() -> Iterator[str]:
    """What the panels ask for."""
    for panel in json.loads(DASHBOARD.read_text("utf-8"))["panels"]:
        for target in panel.get("targets", ()):
            yield target["expr"].replace("$__rate_interval", "5m").replace("$instance", ".*")


def alerts() -> list[dict[str, Any]]:
    """Every alert."""
    return yaml.safe_load((PROMETHEUS / "rkllm-mcp.rules.yml").read_text("utf-8"))["groups"][0]["rules"]


def test_every_metric_and_label_that_is_asked_for_exists(exposed: dict[str, set[str]]) -> None:
    expressions = [*dashboard_expressions(), *(alert["expr"] for alert in alerts())]
    assert len(expressions) > 30
    for expression in expressions:
        names = set(re.findall(r"rkllm_mcp_\w+", expression))
        assert names or "up{" in expression
        assert names <= set(exposed), expression
        asked = {
            label for part in re.findall(r"(?:by|on|group_left) \(([^)]*)\)", expression) for label in part.split(", ")
        }
        asked |= set(re.findall(r"[{,] ?(\w+)(?:=~|!=|=)\"", expression))
        known = ADDED | {label for name in names for label in exposed[name]}
        assert asked <= known, expression


def test_every_metric_is_shown_somewhere(exposed: dict[str, set[str]]) -> None:
    shown = " ".join(dashboard_expressions())
    of_whole = {re.sub(r"_(bucket|count|sum|created)$", "", name) for name in exposed}
    assert {name for name in of_whole if name not in shown} == set()


def test_the_dashboards_panels_have_a_place_and_a_data_source_of_the_readers_choice() -> None:
    dashboard = json.loads(DASHBOARD.read_text("utf-8"))
    panels = dashboard["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    cells = [
        (x, y)
        for panel in panels
        for x in range(panel["gridPos"]["x"], panel["gridPos"]["x"] + panel["gridPos"]["w"])
        for y in range(panel["gridPos"]["y"], panel["gridPos"]["y"] + panel["gridPos"]["h"])
    ]
    assert len(set(cells)) == len(cells)
    assert max(x for x, _ in cells) < 24
    for panel in panels:
        assert panel["type"] == "row" or panel["description"]
        assert {target["datasource"]["uid"] for target in panel.get("targets", ())} <= {"${datasource}"}
    assert [variable["name"] for variable in dashboard["templating"]["list"]] == ["datasource", "instance"]


@pytest.fixture(scope="module")
def promtool() -> str:
    """Prometheus' own checker."""
    found = shutil.which("promtool")
    if found is None:
        pytest.skip("promtool is not here: sudo apt install prometheus")
    return found


def checked(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr


def test_prometheus_takes_the_configuration_the_alerts_and_every_expression(promtool: str, tmp_path: Path) -> None:
    checked(promtool, "check", "config", "--syntax-only", str(PROMETHEUS / "prometheus.yml"))
    rules = [{"record": f"panel:{number}", "expr": text} for number, text in enumerate(dashboard_expressions())]
    file = tmp_path / "panels.yml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "panels", "rules": rules}]}), "utf-8")
    checked(promtool, "check", "rules", str(PROMETHEUS / "rkllm-mcp.rules.yml"), str(file))


def series(name: str, values: str, **labels: str) -> dict[str, str]:
    """A series of one board, as promtool's tests write it."""
    told = ", ".join(f'{key}="{value}"' for key, value in {"instance": "b", "job": "rkllm-mcp", **labels}.items())
    return {"series": f"{name}{{{told}}}", "values": values}


ILL = [
    series("up", "0x60"),
    series("rkllm_mcp_ready", "0x60"),
    series("rkllm_mcp_info", "1x60", emulated="true", model="m", version="1"),
    series("rkllm_mcp_worker_restarts_total", "0+1x60"),
    series("rkllm_mcp_queue_waiting", "9x60"),
    series("rkllm_mcp_time_to_first_token_seconds_bucket", "0x60", le="40.0"),
    series("rkllm_mcp_time_to_first_token_seconds_bucket", "0+10x60", le="80.0"),
    series("rkllm_mcp_time_to_first_token_seconds_bucket", "0+10x60", le="+Inf"),
    series("rkllm_mcp_answers_total", "0+1x60", reason="failed"),
    series("rkllm_mcp_answers_total", "0+1x60", reason="answered"),
    series("rkllm_mcp_tool_calls_total", "0+1x60", tool="t", outcome="error"),
    series("rkllm_mcp_temperature_celsius", "90x60"),
    series("rkllm_mcp_memory_available_bytes", "1000x60"),
]
WELL = [
    series("up", "1x60"),
    series("rkllm_mcp_ready", "1x60"),
    series("rkllm_mcp_info", "1x60", emulated="false", model="m", version="1"),
    series("rkllm_mcp_worker_restarts_total", "1x60"),
    series("rkllm_mcp_queue_waiting", "1x60"),
    series("rkllm_mcp_time_to_first_token_seconds_bucket", "0+10x60", le="1.0"),
    series("rkllm_mcp_time_to_first_token_seconds_bucket", "0+10x60", le="+Inf"),
    series("rkllm_mcp_answers_total", "0x60", reason="failed"),
    series("rkllm_mcp_answers_total", "0+1x60", reason="answered"),
    series("rkllm_mcp_tool_calls_total", "0+1x60", tool="t", outcome="ok"),
    series("rkllm_mcp_temperature_celsius", "50x60"),
    series("rkllm_mcp_memory_available_bytes", "1000000000x60"),
]


def test_every_alert_is_raised_for_a_board_that_is_ill_and_none_for_one_that_is_well(
    promtool: str, tmp_path: Path
) -> None:
    # One expression for all: promtool compares with what it finds, by name and board.
    raised = [{"labels": f'alerts:names{{alertname="{alert["alert"]}"}}', "value": 1} for alert in alerts()]
    count = 'count by (alertname) (ALERTS{alertstate="firing"})'
    (tmp_path / "names.yml").write_text(
        yaml.safe_dump({"groups": [{"name": "names", "rules": [{"record": "alerts:names", "expr": count}]}]}), "utf-8"
    )
    cases = [
        {
            "interval": "1m",
            "input_series": input_series,
            "promql_expr_test": [{"expr": "alerts:names", "eval_time": "50m", "exp_samples": expected}],
        }
        for input_series, expected in ((ILL, raised), (WELL, []))
    ]
    files = [str(PROMETHEUS / "rkllm-mcp.rules.yml"), str(tmp_path / "names.yml")]
    order = ["rkllm-mcp", "names"]
    test = tmp_path / "alerts.yml"
    test.write_text(yaml.safe_dump({"rule_files": files, "group_eval_order": order, "tests": cases}), "utf-8")
    checked(promtool, "test", "rules", str(test))
