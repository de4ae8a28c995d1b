"""Every view of the page, one after the other: a service with something of everything, and the way through the page."""

from __future__ import annotations

from collections.abc import Iterator

from tests.support.browser import OFFLINE, Visit
from tests.support.page_service import HOLD, TESTED, USAGE, Json, PageService, call, download, known_model, result, text

LONG = "a_very_long_word_" + "x" * 90
LOADING = "[data-say=loading]"
_UNFOLD = "document.querySelectorAll('details').forEach((part) => { part.open = true })"
PROSE = f"""#### 題

[x](https://example.com) `code` and {LONG}

| a | {LONG} |
|---|---|
| 東京の天気 | 2 |

```
{"x" * 200}
```

> said

- [x] done
- مرحبا

### Below
"""
FORM: Json = {
    "properties": {
        "name": {"type": "string", "description": LONG},
        "size": {"enum": ["s", "l"]},
        "many": {"enum": list("abcdefg")},
        "extras": {"type": "array", "items": {"enum": ["meal", "window"]}},
        "news": {"type": "boolean"},
    },
    "required": ["name"],
}
ANSWERS: dict[str, list[Json]] = {
    "answer": [{"kind": "thinking", "text": f"Hm. {LONG}"}, text(PROSE), USAGE],
    "calls": [
        call("1", "get_weather", {"place": "東京", "note": LONG}),
        result("1", "get_weather", "no such place " + LONG, is_error=True),
        call("2", "get_weather", {}),
        result("2", "get_weather", "fine " * 200),
        {"kind": "tool_call_failed", "raw": LONG, "reason": "It is no JSON."},
        {"kind": "resource", "uri": f"memo://{LONG}"},
        call("3", LONG, {}, LONG),
        {"kind": "tool_progress", "id": "3", "progress": 3, "total": 10, "message": LONG},
        HOLD,
    ],
    "approval": [
        {"kind": "approval", "id": "q1", "name": LONG, "arguments": {"path": LONG}, "reason": "It deletes."},
        HOLD,
    ],
    "form": [
        {"kind": "elicitation", "id": "q2", "server": "trains", "message": "Who?", "schema": FORM, "url": ""},
        HOLD,
    ],
    "address": [
        {
            "kind": "elicitation",
            "id": "q3",
            "server": "trains",
            "message": "Log in.",
            "schema": {},
            "url": f"https://login.example.com/{LONG}",
        },
        HOLD,
    ],
    "failed": [text("So"), {"kind": "end", "reason": "failed", "error": f"the runtime died {LONG}"}],
}


def tool(name: str, server: str, *, enabled: bool = True, destructive: bool = False) -> Json:
    """A tool as the service lists it."""
    return {
        "name": name,
        "qualified_name": f"mcp__{server}__{name}",
        "server": server,
        "description": f"Does what {name} says.",
        "input_schema": {},
        "enabled": enabled,
        "tokens": 120,
        "read_only": not destructive,
        "destructive": destructive,
    }


def server(name: str, state: str = "ready", error: str = "", *, can_log_in: bool = False) -> Json:
    """A server as the service lists it."""
    return {
        "name": name,
        "transport": "stdio",
        "state": state,
        "error": error,
        "tools": 1,
        "tokens": 120,
        "enabled": True,
        "can_log_in": can_log_in,
    }


def past(name: str, second: float, *, error: str = "") -> Json:
    """A call in the history."""
    return {
        "name": name,
        "server": "files" if "file" in name else "weather",
        "conversation": "c9",
        "started": f"2026-11-21T10:00:{second:06.3f}Z",
        "seconds": 1.25,
        "is_error": bool(error),
        "error": error,
        "ruling": "once" if error else "free",
        "arguments": "{}",
    }


def busy_service() -> PageService:
    """A service with something of everything."""
    return PageService(
        dict(ANSWERS),
        servers=[
            server("weather"),
            server("files"),
            server("notes", "failed", "it exited with code 1"),
            server("crm", "failed", "log in", can_log_in=True),
        ],
        tools=[tool("get_weather", "weather"), tool("delete_file", "files", destructive=True)],
        calls=[
            past("delete_file", 9, error="there is no such file"),
            past("a_tool_with_a_very_long_name_of_many_words", 1),
        ],
        catalogue=[
            known_model("demo", "emulated", loaded=True),
            known_model("small", "here", removable=True),
            known_model("good", recommended=True),
            known_model(LONG, fits="no"),
        ],
        downloads=[download("good", "running"), download(f"them/{LONG}", "failed", problem=LONG)],
        permissions=[{"server": "files", "tool": LONG, "kind": "always"}],
        tests={
            "files": {**TESTED, "state": "failed", "failure": "key", "problem": LONG, "output": [LONG], "tools": []}
        },
        documents={f"{LONG}.pdf": f"At the office. {LONG}"},
        resources={
            "resources": [{"uri": "m://1", "name": "One", "server": "desk", "description": "D"}],
            "templates": [{"uri_template": f"docs://{{page}}/{LONG}", "name": "Pages", "server": "desk"}],
        },
        prompts=[
            {"name": name, "server": "dev", "description": "R", "arguments": [{"name": "a", "required": True}]}
            for name in ("review", "explain")
        ],
    )


def views(visit: Visit, service: PageService) -> Iterator[str]:
    """The name of each view while the page shows it, everything in it unfolded."""
    yield "welcome"
    visit.page.click("#microphone")
    visit.page.wait_for_selector("#listening-line >> text=stt")
    yield "microphone"
    # The line of a microphone that hears, which the browser of these walks does not have.
    visit.page.evaluate("for (const id of ['listening-level', 'converse']) document.getElementById(id).hidden = false")
    yield "microphone, listening"
    visit.page.click("#listening-close")
    yield from _conversations(visit, service)
    yield from _drawers(visit)
    yield from _new_server(visit, service)
    yield from _dialogs(visit, service)


def _conversations(visit: Visit, service: PageService) -> Iterator[str]:
    page = visit.page
    shown_by = {
        "answer": ".costs",
        "calls": ".card-progress progress >> visible=true",
        "approval": ".question .choices",
        "form": "form.form",
        "address": ".host",
        "failed": ".error-notice",
    }
    for name, sign in shown_by.items():
        visit.begin_anew()
        visit.ask(name)
        page.wait_for_selector(sign)
        page.evaluate(_UNFOLD)
        if name == "form":
            page.click("form.form [type=submit]")
            page.wait_for_selector("[aria-invalid=true]")
        yield name
        if page.is_visible("#stop"):
            service.go_on()
            page.wait_for_selector("#stop", state="hidden")
            yield f"{name} over"


def _drawers(visit: Visit) -> Iterator[str]:
    page = visit.page
    if page.is_visible("#menu"):
        page.click("#menu")
        page.wait_for_selector("#sidebar >> visible=true")
        yield "list"
        page.keyboard.press("Escape")
    for name in ("servers", "documents", "models", "board", "settings"):
        visit.open_panel(name)
        page.wait_for_selector(f"#panel-content {LOADING}", state="detached")
        page.evaluate(_UNFOLD)
        if name == "servers":
            page.wait_for_selector(".tools li")
            page.wait_for_selector(".command")
            page.wait_for_selector(".timeline")
        if name == "models":
            page.wait_for_selector("[data-model] progress")
            page.evaluate(_UNFOLD)
        if name == "documents":
            page.fill("#document-search", "office")
            page.press("#document-search", "Enter")
            page.wait_for_selector(".source")
        yield name
        if name == "documents":
            page.click("#panel .source")
            page.wait_for_selector(".passage mark")
            page.wait_for_selector("text=How it ends.")
            yield "passage"
            page.go_back()
            page.wait_for_selector(".passage", state="detached")
        page.click("#panel-close")


def _new_server(visit: Visit, service: PageService) -> Iterator[str]:
    page = visit.page
    service.can_add = True
    visit.open_panel("servers")
    folded = page.locator(".fold > summary").first
    for _ in range(2):  # it is open; what is in it is fetched when it is opened
        folded.click()
    page.wait_for_selector(".fold [name=url]")
    page.locator(".fold form [type=submit]").first.click()
    page.wait_for_selector(".fold .outcome .primary")
    page.locator("[data-control^='test files']").click()
    page.wait_for_selector("[data-say='server.failure.key']")
    yield "servers, adding"
    page.click("#panel-close")


def _dialogs(visit: Visit, service: PageService) -> Iterator[str]:
    page = visit.page
    page.click("#manage")
    page.wait_for_selector(".popover")
    yield "manage"
    page.get_by_role("menuitem", name="settings").or_(page.get_by_role("menuitem", name="設定")).first.click()
    page.wait_for_selector("dialog [name=temperature]")
    yield "manage, further"
    page.keyboard.press("Escape")
    page.wait_for_selector("dialog", state="detached")
    page.click("#attach")
    page.wait_for_selector(".popover")
    yield "attach"
    page.get_by_role("menuitem").last.click()
    page.wait_for_selector("dialog[open]")
    page.evaluate(_UNFOLD)
    yield "attach, further"
    page.keyboard.press("Escape")
    page.wait_for_selector("dialog", state="detached")
    page.click("#prompts")
    page.wait_for_selector("dialog .offer")
    yield "prompts"
    page.click("dialog .offer")
    page.wait_for_selector("dialog[open] .choices")
    yield "prompts, further"
    page.keyboard.press("Escape")
    page.wait_for_selector("dialog", state="detached")
    page.click("#options")
    page.wait_for_selector("#force-tool optgroup", state="attached")
    page.click("dialog fieldset button")
    page.fill(".token-row [list]", "desk")
    page.fill(".token-row [type=password]", "secret")
    page.select_option("#force-tool", index=1)
    yield "options"
    page.click("dialog [type=submit]")
    page.wait_for_selector(".chosen-option")
    page.context.set_offline(True)
    visit.ask("answer")
    page.wait_for_selector(OFFLINE)
    yield "offline"
    service.key = "wanted"
    page.context.set_offline(False)
    page.wait_for_selector("#key")
    yield "key"
    service.key = ""
    page.keyboard.press("Escape")
    page.wait_for_selector("dialog", state="detached")
