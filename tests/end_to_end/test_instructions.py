"""What a configuration says about a server reaches the prompt: instructions, the automatic tool, too many tools."""

from __future__ import annotations

import json
from pathlib import Path

from tests.support.demo_app import Demo, events_of, make_demo, text_of

NOTES = """
from tests.support.mcp_servers.tiny import TinyServer, tool

def search(_, arguments):
    return f"Found for {arguments['query']}: the key is under the mat."

things = [tool(f"{verb}_{thing}", f"{verb} the {thing}", name="string") for verb in ("open", "close", "paint")
          for thing in ("door", "roof", "gate", "shed", "barn", "well", "pond", "fence")]
TinyServer([tool("search_notes", "Search the notes.", query="string"), *things], {"search_notes": search}).run()
"""
KEYS = """
system_instruction = "Notes are secret."
response_instruction = "Name the note."
auto_context_tool = "search_notes"
"""


def demo_with_notes(folder: Path, extra: str = "") -> Demo:
    script = folder / "notes.py"
    script.write_text(NOTES, encoding="utf-8")
    demo = make_demo(folder, [("notes", (str(script),), {"PYTHONPATH": "${PYTHONPATH}"})], extra=extra)
    with demo.config.open("a", encoding="utf-8") as file:
        file.write(KEYS)
    return demo


def test_instructions_and_automatic_context_of_a_configuration_are_in_the_prompt(tmp_path: Path) -> None:
    result = demo_with_notes(tmp_path).run_here("prompt", "--json", "Where is the key?")
    parts = {part["part"]: part["text"] for part in json.loads(result.stdout)["parts"]}
    assert "Notes are secret." in parts["system"]
    assert parts["user"].index("the key is under the mat.") < parts["user"].index("Name the note.")
    assert parts["user"].index("Name the note.") < parts["user"].index("\n\nWhere is the key?")
    assert "Found for Where is the key?:" in parts["user"]


def test_of_too_many_tools_the_prompt_lists_those_that_fit_and_find_tools(tmp_path: Path) -> None:
    demo = demo_with_notes(tmp_path, extra="[agent]\ntool_budget_tokens = 400\n")
    result = demo.run_here("prompt", "--json", "Please paint the barn")
    parts = {part["part"]: part["text"] for part in json.loads(result.stdout)["parts"]}
    assert '"name":"find_tools"' in parts["tools"]
    assert '"name":"paint_barn"' in parts["tools"]
    assert '"name":"open_well"' not in parts["tools"]
    tokens = next(part["tokens"] for part in json.loads(result.stdout)["parts"] if part["part"] == "tools")
    assert tokens < 400 + 200  # the list, and the words around it


def test_an_answer_shows_that_the_automatic_tool_ran(tmp_path: Path) -> None:
    result = demo_with_notes(tmp_path).run_here("run", "--json", "Hello")
    events = events_of(result.stdout)
    lines = [event["text"] for event in events if event["kind"] == "status"]
    assert lines[-2:] == ["[MCP: Calling tool 'search_notes']", "[MCP: Tool 'search_notes' completed]"]
    assert text_of(events).startswith("This is the emulated model")
    assert events[-1]["reason"] == "answered"


def test_a_prompt_that_is_looked_at_has_the_resources_that_the_question_names(tmp_path: Path) -> None:
    demo = make_demo(tmp_path, [("memos", ("-m", "tests.support.mcp_servers.asking"), {"PYTHONPATH": "${PYTHONPATH}"})])
    result = demo.run_here("prompt", "--json", "What is in @memos:memo://monday?")
    parts = {part["part"]: part["text"] for part in json.loads(result.stdout)["parts"]}
    assert "[resource memos:memo://monday]\nBuy milk.\n[end of resource]" in parts["user"]
    assert "What is in [resource memos:memo://monday]?" in parts["user"]
