"""Other people's servers, over every transport they have: npm's everything, filesystem, memory and sequential-thinking,
PyPI's time, git, fetch and sqlite.

One configuration file starts all of them once for this module, as ``rkllm-mcp`` would.
"""

from __future__ import annotations

import base64
import json
from collections.abc import AsyncGenerator, Generator, Mapping, Sequence
from pathlib import Path

import anyio
import pytest

from rkllm_mcp.app.tools import open_tools
from rkllm_mcp.config.loading import load_config
from rkllm_mcp.errors import ServerRefusedError, ToolboxError
from rkllm_mcp.messages import Message, ToolCall, ToolResult
from rkllm_mcp.protocols import CallContext, ElicitationAnswer
from tests.support.demo_app import make_demo
from tests.support.mcp_servers.web import Reply, Request, serving
from tests.support.third_party import program
from tests.support.third_party_world import (
    PATIENCE_S,
    Owner,
    Paris,
    World,
    everything_listening,
    make_folder,
    write_configuration,
)

pytestmark = pytest.mark.anyio
LEGACY, MODERN = "2025-11-25", "2026-07-28"
# The everything server under the name of each transport; its tools exist three times, so they go by their long names.
OVER = pytest.mark.parametrize("over", ["stdio", "http", "sse"])
NPM = pytest.mark.usefixtures("npm")
PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg=="  # one pixel


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="module")
def npm() -> None:
    """The servers that come from npm; skips where they cannot be had."""
    for name in ("everything", "filesystem", "memory", "sequential-thinking"):
        program(f"mcp-server-{name}")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the servers work."""
    return make_folder(tmp_path_factory.mktemp("third-party"))


@pytest.fixture(scope="module")
def addresses() -> Generator[Mapping[str, str]]:
    """Where the everything server listens."""
    with everything_listening() as addresses:
        yield addresses


@pytest.fixture(scope="module")
def config(folder: Path, addresses: Mapping[str, str]) -> Path:
    """The configuration file."""
    return write_configuration(folder, addresses)


@pytest.fixture(scope="module")
async def world(config: Path, folder: Path) -> AsyncGenerator[World]:
    """Everything, connected."""
    model = Paris()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RKLLM_MCP_STATE", str(folder / "state"))
        async with open_tools(load_config(config), sampler=model) as environment:
            with anyio.fail_after(PATIENCE_S):
                await environment.toolbox.wait_until_connected()
            yield World(environment.toolbox, folder, model)


@NPM
async def test_every_server_is_spoken_to_in_its_own_era(world: World) -> None:
    states = {state.name: state for state in world.toolbox.servers()}
    assert {name: state.reason for name, state in states.items() if state.state != "ready"} == {}
    modern = {name for name, state in states.items() if state.protocol_version == MODERN}
    assert modern == {"time", "git", "fetch"}
    assert {state.protocol_version for name, state in states.items() if name not in modern} == {LEGACY}
    counts = {name: state.tool_count for name, state in states.items() if name not in ("stdio", "http", "sse")}
    assert counts == {
        "files": 14,
        "rooted": 1,
        "memory": 9,
        "thinking": 1,
        "time": 2,
        "git": 12,
        "fetch": 1,
        "sqlite": 6,
    }


# --- everything, over three transports --------------------------------------------------------------------------------


@NPM
@OVER
async def test_tools_answer_with_text_images_links_resources_and_structured_content(world: World, over: str) -> None:
    tool = f"mcp__{over}__"
    assert await world.said(f"{tool}echo", message="こんにちは") == "Echo: こんにちは"
    assert await world.said(f"{tool}get-sum", a=20, b=5) == "The sum of 20 and 5 is 25."
    structured = json.loads(await world.said(f"{tool}get-structured-content", location="Chicago"))
    assert structured.keys() == {"temperature", "conditions", "humidity"}
    image = await world.said(f"{tool}get-tiny-image")
    assert "[image: image/png, 4.0 kB, not shown]" in image.splitlines()
    annotated = await world.said(f"{tool}get-annotated-message", messageType="success", includeImage=True)
    assert annotated.startswith("Operation completed successfully\n[image: image/png, ")
    links = (await world.said(f"{tool}get-resource-links", count=2)).splitlines()
    assert [line.split(":", 1)[0] for line in links[1:]] == ["[resource Blob Resource 1", "[resource Text Resource 2"]
    embedded = await world.said(f"{tool}get-resource-reference", resourceType="Text", resourceId=3)
    assert "[resource demo://resource/dynamic/text/3]\nResource 3: This is a plaintext resource" in embedded
    assert "Invalid arguments for tool get-sum" in await world.failed(f"{tool}get-sum", a="many")


@NPM
@OVER
async def test_resources_are_listed_read_and_new_ones_found(world: World, over: str) -> None:
    offerings = world.toolbox.offerings
    with anyio.fail_after(PATIENCE_S):
        listed = {resource.name: resource for resource in await offerings.resources(over)}
        assert listed["architecture.md"].mime_type == "text/markdown"
        document = await offerings.read_resource(listed["architecture.md"].reference, 100)
        assert (document.text.startswith("# Everything Server"), document.truncated) == (True, True)
        templates = [template.uri_template for template in await offerings.templates(over)]
        assert templates == ["demo://resource/dynamic/text/{resourceId}", "demo://resource/dynamic/blob/{resourceId}"]
        made = await offerings.read_resource(f"{over}:demo://resource/dynamic/text/4")
        assert made.text.startswith("Resource 4: This is a plaintext resource")
        packed = await offerings.read_resource(f"{over}:demo://resource/dynamic/blob/4")
        assert packed.text.startswith("Resource 4: This is a base64 blob")
        with pytest.raises(ServerRefusedError, match="could not be read: "):
            await offerings.read_resource(f"{over}:demo://resource/dynamic/text/none")
        await world.said(
            f"mcp__{over}__gzip-file-as-resource", name=f"{over}.gz", data="data:text/plain;base64,aGVsbG8="
        )
        assert f"{over}.gz" in {resource.name for resource in await offerings.resources(over)}
        zipped = await offerings.read_resource(f"{over}:demo://resource/session/{over}.gz")
    assert zipped.text.startswith(f"[resource demo://resource/session/{over}.gz: application/gzip, ")


@NPM
@OVER
async def test_prompts_are_filled_and_their_arguments_completed(world: World, over: str) -> None:
    offerings = world.toolbox.offerings
    with anyio.fail_after(PATIENCE_S):
        names = [prompt.name for prompt in await offerings.prompts(over)]
        assert names == ["simple-prompt", "args-prompt", "completable-prompt", "resource-prompt"]
        filled = await offerings.fill_prompt(f"{over}:args-prompt", {"city": "Tokyo"})
        assert filled.messages == (Message("user", "What's weather in Tokyo?"),)
        with pytest.raises(ToolboxError, match="prompt 'args-prompt' needs city; add city=…"):
            await offerings.fill_prompt(f"{over}:args-prompt", {})
        about = await offerings.fill_prompt(f"{over}:resource-prompt", {"resourceType": "Text", "resourceId": "2"})
        assert "[resource demo://resource/dynamic/text/2]\nResource 2: " in about.messages[0].text
        offerings.completion_patience_s = PATIENCE_S
        assert await offerings.complete_prompt(f"{over}:completable-prompt", "department", "E") == ("Engineering",)
        sales = await offerings.complete_prompt(f"{over}:completable-prompt", "name", "", {"department": "Sales"})
        assert sales == ("David", "Eve", "Frank")
        template = "demo://resource/dynamic/text/{resourceId}"
        assert await offerings.complete_resource(over, template, "resourceId", "7") == ("7",)


@NPM
@OVER
async def test_a_subscriber_is_notified_of_a_changed_resource(world: World, over: str) -> None:
    heard: list[str] = []
    news = anyio.Event()

    async def note(uri: str) -> None:
        heard.append(uri)
        news.set()

    uri = "demo://resource/static/document/features.md"
    with anyio.fail_after(PATIENCE_S):
        async with anyio.create_task_group() as listening:
            await listening.start(world.toolbox.offerings.subscribe, f"{over}:{uri}", note)
            assert "Started" in await world.said(f"mcp__{over}__toggle-subscriber-updates")
            await news.wait()
            listening.cancel_scope.cancel()
    assert heard[0] == uri
    assert "Stopped" in await world.said(f"mcp__{over}__toggle-subscriber-updates")
    asked = [method for direction, method in world.messages(over) if direction == "sent" and "subscribe" in method]
    assert asked == ["resources/subscribe", "resources/unsubscribe"]


@NPM
@OVER
async def test_the_server_asks_the_model_its_owner_and_for_the_roots(world: World, over: str) -> None:
    tool, owner = f"mcp__{over}__", Owner(ElicitationAnswer("accept", {"name": "Ann"}))
    sampled = await world.call(f"{tool}trigger-sampling-request", owner, prompt="Capital of France?", maxTokens=7)
    assert '"text": "Paris"' in sampled.text
    assert (world.model.asked[-1].server, world.model.asked[-1].max_tokens) == (over, 7)
    assert [question.name for question in owner.approvals] == [f"{tool}trigger-sampling-request", f"sampling:{over}"]
    refused = await world.call(f"{tool}trigger-sampling-request", Owner(decision="deny"), prompt="Capital of Spain?")
    assert refused.is_error

    form = await world.call(f"{tool}trigger-elicitation-request", owner)
    assert "- Name: Ann\n- Favorite Integer: 42\n- Favorite Number: 3.14" in form.text
    assert owner.questions[0].schema["required"] == ["name"]
    nobody = await world.call(f"{tool}trigger-elicitation-request", Owner(ElicitationAnswer("decline")))
    assert "declined" in nobody.text
    address = "https://example.org/login"
    shown = await world.call(f"{tool}trigger-url-elicitation", owner, url=address)
    assert (shown.is_error, owner.questions[-1].url) == (False, address)

    roots = await world.said(f"{tool}get-roots-list")
    assert (world.folder / "files").as_uri() in roots
    (state,) = [state for state in world.toolbox.servers() if state.name == over]
    assert any(line.startswith("info: everything-server: Roots updated: 1 root(s)") for line in state.last_lines)


@NPM
@OVER
async def test_progress_is_reported_and_a_call_that_is_given_up_is_cancelled_on_the_server(
    world: World, over: str
) -> None:
    steps: list[tuple[float, float | None]] = []
    begun = anyio.Event()

    async def note(progress: float, total: float | None, message: str | None) -> None:
        del message
        steps.append((progress, total))
        begun.set()

    name = f"mcp__{over}__trigger-long-running-operation"
    context = CallContext(on_progress=note, asker=Owner())
    with anyio.fail_after(PATIENCE_S):
        result = await world.toolbox.call(ToolCall("call_1", name, {"duration": 0.2, "steps": 4}), context)
        assert result.text == "Long running operation completed. Duration: 0.2 seconds, Steps: 4."
        assert steps == [(1, 4), (2, 4), (3, 4), (4, 4)]
        begun = anyio.Event()
        async with anyio.create_task_group() as callers:
            arguments = {"duration": 10, "steps": 50}
            callers.start_soon(world.toolbox.call, ToolCall("call_2", name, arguments), context)
            await begun.wait()
            callers.cancel_scope.cancel()
    assert await world.said(f"mcp__{over}__echo", message="still here") == "Echo: still here"
    sent = [method for direction, method in world.messages(over) if direction == "sent"]
    # The host also asks a server that was given up whether it is still there.
    assert "notifications/cancelled" in sent[-3:]


@NPM
async def test_a_call_that_runs_as_a_task_is_followed_to_its_end(world: World) -> None:
    results: dict[str, ToolResult] = {}
    owner = Owner(ElicitationAnswer("accept", {"interpretation": "technical"}))

    async def research(over: str) -> None:
        tool = f"mcp__{over}__simulate-research-query"
        results[over] = await world.call(tool, owner, topic="rain", ambiguous=over == "stdio")

    async with anyio.create_task_group() as callers:
        for over in ("stdio", "http", "sse"):
            callers.start_soon(research, over)
    assert {over: result.text.splitlines()[0] for over, result in results.items()} == {
        "stdio": "# Research Report: rain (technical)",
        "http": "# Research Report: rain",
        "sse": "# Research Report: rain",
    }
    assert [question.server for question in owner.questions] == ["stdio"]
    assert ("sent", "tasks/get") in world.messages("sse")


@NPM
@pytest.mark.parametrize("over", ["stdio", "sse"])  # over HTTP it says so before there is a stream to say it on
async def test_a_server_that_says_that_its_tools_have_changed_is_asked_for_them_again(world: World, over: str) -> None:
    data = "data:text/plain;base64,aGVsbG8="
    await world.said(f"mcp__{over}__gzip-file-as-resource", name=f"{over}-too.gz", data=data)
    messages = world.messages(over)
    # It has more tools once it knows what the host can do, and one more resource now.
    told = messages.index(("received", "notifications/tools/list_changed"))
    assert ("sent", "tools/list") in messages[told:]
    assert ("received", "notifications/resources/list_changed") in messages
    assert {state.name: state.tool_count for state in world.toolbox.servers()}[over] == 17


# --- the other servers of npm -----------------------------------------------------------------------------------------


@NPM
async def test_the_filesystem_server_reads_and_writes_its_folder_and_no_other(world: World) -> None:
    files = world.folder / "files"
    assert await world.said("list_directory", path=str(files)) == "[FILE] note.txt"
    assert await world.said("read_text_file", path=str(files / "note.txt"), head=1) == "天気は晴れ"
    report = files / "report.md"
    refused = await world.call("write_file", Owner(decision="deny"), path=str(report), content="雨")
    assert (refused.ruling, report.exists()) == ("deny", False)
    await world.said("write_file", path=str(report), content="雨")
    edits = [{"oldText": "雨", "newText": "大雨"}]
    assert "+大雨" in await world.said("edit_file", path=str(report), edits=edits)
    assert report.read_text(encoding="utf-8") == "大雨"
    await world.said("move_file", source=str(report), destination=str(files / "moved.md"))
    assert await world.said("search_files", path=str(files), pattern="*.md") == str(files / "moved.md")
    tree = json.loads(await world.said("directory_tree", path=str(files)))
    assert [entry["name"] for entry in tree] == ["moved.md", "note.txt"]
    assert "isFile: true" in await world.said("get_file_info", path=str(files / "note.txt"))
    outside = await world.failed("read_text_file", path=str(world.folder / "mcp_config.toml"))
    assert "Access denied - path outside allowed directories" in outside


@NPM
async def test_the_filesystem_server_describes_a_picture_and_takes_its_folders_from_the_roots(world: World) -> None:
    picture = world.folder / "files" / "dot.png"
    picture.write_bytes(base64.b64decode(PIXEL))
    assert await world.said("read_media_file", path=str(picture)) == "[image: image/png, 72 bytes, not shown]"
    picture.unlink()
    assert (
        await world.said("mcp__rooted__list_allowed_directories") == f"Allowed directories:\n{world.folder / 'files'}"
    )


@NPM
async def test_the_memory_server_keeps_a_graph_that_is_also_a_resource(world: World) -> None:
    ann = {"name": "Ann", "entityType": "person", "observations": ["likes rain"]}
    await world.said("create_entities", entities=[ann, {"name": "Kyoto", "entityType": "city", "observations": []}])
    await world.said("create_relations", relations=[{"from": "Ann", "to": "Kyoto", "relationType": "lives in"}])
    await world.said("add_observations", observations=[{"entityName": "Kyoto", "contents": ["has temples"]}])
    found = json.loads(await world.said("search_nodes", query="rain"))
    assert found["entities"] == [ann]
    with anyio.fail_after(PATIENCE_S):
        graph = await world.toolbox.offerings.read_resource("memory://knowledge-graph")
    assert json.loads(graph.text) == json.loads(await world.said("read_graph"))
    assert json.loads(graph.text)["relations"] == [{"from": "Ann", "to": "Kyoto", "relationType": "lives in"}]
    owner = Owner()
    await world.call("delete_entities", owner, entityNames=["Ann"])
    assert [question.name for question in owner.approvals] == ["delete_entities"]
    assert [entity["name"] for entity in json.loads(await world.said("read_graph"))["entities"]] == ["Kyoto"]


@NPM
async def test_the_thinking_server_counts_thoughts_and_branches(world: World) -> None:
    thought = {"thought": "雨か？", "thoughtNumber": 1, "totalThoughts": 2, "nextThoughtNeeded": True}
    assert json.loads(await world.said("sequentialthinking", **thought))["thoughtHistoryLength"] == 1
    second = {**thought, "thoughtNumber": 2, "branchFromThought": 1, "branchId": "sun", "nextThoughtNeeded": False}
    state = json.loads(await world.said("sequentialthinking", **second))
    assert (state["branches"], state["thoughtHistoryLength"]) == (["sun"], 2)
    assert "thoughtNumber" in await world.failed("sequentialthinking", thought="?")


# --- the servers of PyPI ----------------------------------------------------------------------------------------------


async def test_the_time_server_tells_and_converts(world: World) -> None:
    now = json.loads(await world.said("get_current_time", timezone="Asia/Tokyo"))
    assert now["datetime"].endswith("+09:00")
    noon = {"source_timezone": "Asia/Tokyo", "time": "12:00", "target_timezone": "Asia/Kathmandu"}
    assert json.loads(await world.said("convert_time", **noon))["time_difference"] == "-3.25h"
    assert "Mars" in await world.failed("get_current_time", timezone="Mars/Olympus")


async def test_the_git_server_stages_commits_and_tells_the_history(world: World) -> None:
    repository = world.folder / "repository"
    (repository / "weather.txt").write_text("晴れ\n", encoding="utf-8")
    where = {"repo_path": str(repository)}
    assert "weather.txt" in await world.said("git_status", **where)
    await world.said("git_add", **where, files=["weather.txt"])
    assert "+晴れ" in await world.said("git_diff_staged", **where)
    assert "committed" in await world.said("git_commit", **where, message="Add the weather")
    history = await world.said("git_log", **where, max_count=2)
    assert history.index("Add the weather") < history.index("Begin")
    await world.said("git_create_branch", **where, branch_name="rain")
    assert "rain" in await world.said("git_branch", **where, branch_type="local")
    assert await world.failed("git_status", repo_path=str(world.folder / "files"))


async def test_the_fetch_server_reads_a_page_in_parts_and_fills_its_prompt(world: World) -> None:
    page = "<html><head><title>W</title></head><body><h1>Weather</h1><p>Sunny all day.</p></body></html>"

    def answer(request: Request) -> Reply:
        if request.path == "/gone":
            return Reply(404)
        return Reply(200, page.encode(), {"Content-Type": "text/html"})

    async with serving(answer) as address:
        raw = await world.said("fetch", url=f"{address}/page", raw=True)
        assert page in raw
        read = await world.said("fetch", url=f"{address}/page")
        assert ("Sunny all day." in read, "<p>" in read) == (True, False)
        part = await world.said("fetch", url=f"{address}/page", raw=True, max_length=12, start_index=6)
        assert page[6:18] in part
        assert page[:6] not in part
        assert "404" in await world.failed("fetch", url=f"{address}/gone")
        with anyio.fail_after(PATIENCE_S):
            filled = await world.toolbox.offerings.fill_prompt("fetch:fetch", {"url": f"{address}/page"})
    assert "Sunny all day." in filled.messages[0].text


async def test_the_sqlite_server_answers_queries_and_keeps_a_memo(world: World) -> None:
    await world.said("create_table", query="CREATE TABLE users (id INTEGER PRIMARY KEY, name TEXT)")
    assert await world.said("write_query", query="INSERT INTO users (name) VALUES ('Alice'), ('Bob')") == (
        "[{'affected_rows': 2}]"
    )
    assert await world.said("read_query", query="SELECT name FROM users ORDER BY id DESC") == (
        "[{'name': 'Bob'}, {'name': 'Alice'}]"
    )
    assert await world.said("list_tables") == "[{'name': 'users'}]"
    assert "'name': 'name'" in await world.said("describe_table", table_name="users")
    # It does not mark its errors as such.
    assert "Only SELECT queries" in await world.said("read_query", query="DELETE FROM users")
    await world.said("append_insight", insight="Bob came last.")
    with anyio.fail_after(PATIENCE_S):
        memo = await world.toolbox.offerings.read_resource("memo://insights")
        assert "- Bob came last." in memo.text
        filled = await world.toolbox.offerings.fill_prompt("sqlite:mcp-demo", {"topic": "weather"})
    assert "weather" in filled.messages[0].text


# --- from the shell ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "words", "expected"),
    [
        ("http", ["get-sum", "a=20", "b=5"], "The sum of 20 and 5 is 25.\n"),
        ("sse", ["echo", "message=hello"], "Echo: hello\n"),
        ("sqlite", ["read_query", "query=SELECT 6 * 7 AS answer"], "[{'answer': 42}]\n"),
    ],
)
def test_a_tool_is_called_from_the_shell(
    config: Path, tmp_path: Path, name: str, words: Sequence[str], expected: str
) -> None:
    if name != "sqlite":
        program("mcp-server-everything")
    demo = make_demo(tmp_path, [])
    chosen = [
        part for part in config.read_text("utf-8").split("\n[[servers]]\n") if part.startswith(f'name = "{name}"')
    ]
    demo.config.write_text(f"[[servers]]\n{chosen[0]}", encoding="utf-8")
    done = demo.run("tools", "call", "--yes", *words)
    assert (done.returncode, done.stdout) == (0, expected), done.stderr
