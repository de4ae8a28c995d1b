"""Node-RED runs the page's flow, and asks the knowledge server over MCP from a function node."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.support.installed import need_agents
from tests.support.served import scripted_model, served
from tests.support.shared import REPOSITORY

SNIPPETS = REPOSITORY / "rkllm_mcp" / "surfaces" / "web" / "snippets.json"
SETTINGS = REPOSITORY / "tests" / "support" / "node_red_settings.js"
RULES = """
rule
  user ^Hello$
  say Hello from the board.
"""
ASK = """
const client = await global.get("connectMcp")(ADDRESS);
const { tools } = await client.listTools();
const base = await client.callTool({ name: "create_knowledge_base", arguments: { name: "Rules" } });
const { knowledge_base_id } = base.structuredContent;
const document = { knowledge_base_id, text: "The allowance for remote work is 5,000 yen." };
await client.callTool({ name: "add_document", arguments: document });
const name = "search_documents";
const search = (query, base) => client.callTool({ name, arguments: { query, knowledge_base_id: base } });
const refused = await search("allowance", "none");
const found = await search("allowance for remote work", knowledge_base_id);
msg.payload = [tools.length, refused.content[0].text, JSON.stringify(found.content)].join(" | ");
await client.close();
return msg;
"""
_LIMIT_S = 120


@contextmanager
def _running(command: Sequence[str | Path], env: Mapping[str, str]) -> Generator[subprocess.Popen[str]]:
    """A program whose output is read; it is ended afterwards, and after the limit."""
    with subprocess.Popen(
        command, env=dict(env), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, text=True
    ) as process:
        timer = threading.Timer(_LIMIT_S, process.kill)
        timer.start()
        try:
            yield process
        finally:
            timer.cancel()
            process.kill()


def _lines_until(process: subprocess.Popen[str], *parts: str) -> list[str]:
    """The lines of a program until each part has been seen, or until its end."""
    assert process.stdout is not None
    lines: list[str] = []
    missing = set(parts)
    for line in process.stdout:
        lines.append(line)
        missing -= {part for part in missing if part in line}
        if not missing:
            break
    return lines


def _flow_of_the_page(address: str) -> list[dict[str, Any]]:
    """The flow that the page offers, started once and with its answer on the standard output."""
    snippet = next(each for each in json.loads(SNIPPETS.read_text("utf-8")) if each["id"] == "node-red")
    text = "\n".join(snippet["text"])
    for name, value in {"<address>": address, "<key>": "none", "<model>": "default"}.items():
        text = text.replace(name, value)
    nodes: list[dict[str, Any]] = json.loads(text)
    extra = {"inject": {"once": True, "onceDelay": 0.1, "props": [{"p": "payload"}]}, "debug": {"console": True}}
    return [{"z": "tab", **node, **extra.get(node["type"], {})} for node in nodes]


def _flow_of_mcp(address: str) -> list[dict[str, Any]]:
    """A flow that asks the knowledge server once and writes what it says to the standard output."""
    code = ASK.replace("ADDRESS", json.dumps(address))
    return [
        {"id": "m1", "type": "inject", "once": True, "onceDelay": 0.1, "props": [{"p": "payload"}], "wires": [["m2"]]},
        {"id": "m2", "type": "function", "func": code, "outputs": 1, "wires": [["m3"]]},
        {"id": "m3", "type": "debug", "console": True, "active": True, "complete": "payload", "targetType": "msg"},
    ]


def test_the_flow_of_the_page_is_answered_and_a_function_node_asks_the_knowledge_server(tmp_path: Path) -> None:
    agents = need_agents()
    home, user = tmp_path / "home", tmp_path / "user"
    home.mkdir()
    user.mkdir()
    environment = {
        "PATH": f"{agents}/node/node_modules/node/bin:{os.environ['PATH']}",
        "HOME": str(home),
        "AGENTS": str(agents),
    }
    knowledge = [sys.executable, "-m", "mcp_servers.knowledge", "--http", "--port", "0", "--folder", tmp_path / "kept"]
    with (
        served(tmp_path / "board", scripted_model(tmp_path / "model", RULES)) as board,
        _running(knowledge, {**environment, "PYTHONPATH": str(REPOSITORY)}) as server,
    ):
        said = _lines_until(server, "http://")
        address = next(word for word in said[-1].split() if word.startswith("http://")).rstrip(".,")
        nodes = [*_flow_of_the_page(board.url), *({"z": "tab", **node} for node in _flow_of_mcp(address))]
        (user / "flows.json").write_text(json.dumps([{"id": "tab", "type": "tab"}, *nodes]), "utf-8")
        node_red = agents / "npm" / "node_modules" / ".bin" / "node-red"
        with _running([node_red, "-u", user, "-s", SETTINGS, "-p", "0"], environment) as process:
            lines = _lines_until(process, "Hello from the board.", "5,000 yen")
    text = "".join(lines)
    assert "[debug:answer] Hello from the board." in text, text
    assert re.search(r"\[debug:m3\] \d+ \| .*none.* \| .*5,000 yen", text), text
