"""What goes with a question besides its words: a tool to begin with, and tokens for servers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.support.browser import PHONE, visiting
from tests.support.page_service import Json, PageService, running, text
from tests.support.page_views import server, tool
from tests.support.pictures import RED_ABOVE_BLUE

if TYPE_CHECKING:
    from playwright.sync_api import Browser


def test_a_tool_goes_with_one_question_and_a_token_with_all_and_neither_is_stored(browser: Browser) -> None:
    service = PageService(
        {"x": [text("Mild.")], "y": [text("Warm.")]},
        servers=[server("weather"), server("desk")],
        tools=[tool("get_weather", "weather"), tool("delete_file", "desk", enabled=False)],
    )
    with running(service), visiting(browser, service.url, PHONE) as visit:
        page = visit.page
        open_options = page.get_by_role("button", name="Options for the next question")
        open_options.click()
        page.wait_for_selector("#force-tool optgroup", state="attached")
        assert page.locator("#force-tool option").all_inner_texts() == ["The model chooses", "get_weather"]
        page.get_by_label("Begin with this tool").select_option("get_weather")
        page.get_by_role("button", name="Add a token").click()
        page.get_by_label("Token", exact=True).fill("s3cret")
        page.get_by_role("button", name="Use", exact=True).click()
        page.wait_for_selector("text=This token has no name.")
        page.get_by_label("Name").fill("desk")
        page.get_by_role("button", name="Use", exact=True).click()
        page.wait_for_selector(".chosen-option")
        assert page.locator(".chosen-option").all_inner_texts() == ["begins with get_weather", "token for desk"]

        visit.answered("x")
        assert page.locator(".chosen-option").all_inner_texts() == ["token for desk"]
        visit.answered("y")
        page.get_by_role("button", name="Leave out: desk").click()
        visit.answered("x")
        token = {"tokens": {"desk": "s3cret"}}
        asked = {"conversation": "c1", "approvals": "ask", "detached": True}
        assert service.sent("/v1/execute") == [
            {"message": "x", "force_tool": "mcp__weather__get_weather", **token, "approvals": "ask", "detached": True},
            {"message": "y", **token, **asked},
            {"message": "x", **asked},
        ]
        kept = "JSON.stringify(localStorage) + JSON.stringify(sessionStorage) + location.href + document.cookie"
        assert page.evaluate(kept).count("s3cret") == 0


def test_a_question_that_is_asked_again_takes_its_options_along(browser: Browser) -> None:
    service = PageService({"x": [text("Mild.")]}, tools=[tool("get_weather", "")], refusals=[(503, "not yet", {})])
    with running(service), visiting(browser, service.url) as visit:
        page = visit.page
        page.click("#options")
        page.wait_for_selector("#force-tool optgroup", state="attached")
        page.get_by_label("Begin with this tool").select_option("get_weather")
        page.get_by_role("button", name="Use", exact=True).click()
        page.wait_for_selector(".chosen-option")
        visit.ask("x")
        page.click("text=Ask again")
        page.wait_for_selector("text=Mild.")
        assert [body["force_tool"] for body in service.sent("/v1/execute")] == ["mcp____get_weather"] * 2


def test_tokens_are_forgotten_with_the_key_because_the_next_may_belong_to_another_person(browser: Browser) -> None:
    with running(PageService({"x": [text("Mild.")]})) as service, visiting(browser, service.url) as visit:
        page = visit.page
        page.click("#options")
        page.get_by_role("button", name="Add a token").click()
        page.get_by_label("Name").fill("desk")
        page.get_by_label("Token", exact=True).fill("s3cret")
        page.get_by_role("button", name="Use", exact=True).click()
        page.wait_for_selector(".chosen-option")
        visit.open_panel("settings")
        page.get_by_role("button", name="Enter a key").click()
        page.get_by_role("textbox", name="Key").fill("sk-other")
        page.keyboard.press("Enter")
        page.wait_for_selector(".chosen-option", state="detached")
        visit.answered("x")
        assert service.sent("/v1/execute") == [{"message": "x", "approvals": "ask", "detached": True}]


def test_files_become_part_of_the_question_with_their_tokens_shown(browser: Browser) -> None:
    with running(PageService()) as service, visiting(browser, service.url, PHONE) as visit:
        page = visit.page
        page.click("#attach")
        with page.expect_file_chooser() as chooser:
            page.get_by_role("menuitem", name="Choose files").click()
        chooser.value.set_files(
            [
                {"name": "notes.txt", "mimeType": "text/plain", "buffer": b"buy milk"},
                {"name": "rules.pdf", "mimeType": "application/pdf", "buffer": b"two days"},
                {"name": "photo.png", "mimeType": "image/png", "buffer": RED_ABOVE_BLUE},
            ]
        )
        page.wait_for_selector("#files >> text=8 tokens >> nth=1")
        page.wait_for_selector("#files img[src]")
        assert "This model cannot read images." in page.inner_text("#files")
        # A long paste is a file, and one tap makes it text again.
        paste = """(text) => {
            const clipboardData = new DataTransfer();
            clipboardData.setData("text/plain", text);
            const event = new ClipboardEvent("paste", { clipboardData, bubbles: true, cancelable: true });
            document.getElementById("question").dispatchEvent(event);
        }"""
        page.evaluate(paste, "word " * 1000)
        page.wait_for_selector("#files >> text=5,000 tokens")
        page.wait_for_selector("text=920 tokens too many for this model")
        page.get_by_role("button", name="Paste as text").click()
        visit.await_question("word " * 1000 + " ")
        visit.ask("Summarise")
        page.wait_for_selector("text=I do not know.")
        (sent,) = service.sent("/v1/execute")
        read = "notes.txt:\n````\nbuy milk\n````\n\nrules.pdf:\n````\ntwo days\n````\n\nSummarise"
        assert sent["message"] == read
        assert page.locator("#files > *").count() == 0


def test_content_that_does_not_fit_has_choices_with_the_cost_of_each(browser: Browser) -> None:
    book = "\f".join(f"{number} " + "x" * 1500 for number in range(1, 5))
    tools: list[Json] = [tool("search_documents", "knowledge")]
    with (
        running(PageService(tools=tools, documents={})) as service,
        visiting(browser, service.url, PHONE) as visit,
    ):
        page = visit.page

        def add(name: str, words: str) -> None:
            page.click("#attach")
            with page.expect_file_chooser() as chooser:
                page.get_by_role("menuitem", name="Choose files").click()
            chooser.value.set_files([{"name": name, "mimeType": "", "buffer": words.encode()}])

        # The window has 4,096 tokens, of which the tools take 120.
        add("book.pdf", book)
        page.wait_for_selector("text=book.pdf has 4 pages; about 2 fit into the model")
        page.get_by_role("button", name="Use only up to page 2").click()
        page.wait_for_selector("#files >> text=book.pdf, up to page 2")
        page.wait_for_selector("#files >> text=3,005 tokens")
        add("more.txt", "more\n" * 400)
        page.wait_for_selector("text=book.pdf, up to page 2 has 2 pages; about 1 fit")
        # The largest is offered first, and its first page alone would fit.
        page.get_by_role("button", name="Use only up to page 1").click()
        page.wait_for_selector("#files [role=alert]", state="detached")
        page.get_by_role("button", name="Leave the file out").first.click()
        page.get_by_role("button", name="Leave the file out").click()
        add("long.txt", "line\n" * 1000)
        page.get_by_role("button", name="Use only the beginning").click()
        page.wait_for_selector("#files >> text=long.txt, beginning")
        page.wait_for_selector("#files [role=alert]", state="detached")
        page.get_by_role("button", name="Leave the file out").click()
        add("long.txt", "line\n" * 1000)
        page.get_by_role("button", name="Leave out long.txt").click()
        assert page.locator("#files > *").count() == 0
        # The passages that fit: it goes into the documents, and the answer begins with a search.
        add("book.pdf", book)
        page.get_by_role("button", name="Put it into the documents and use the passages that fit").click()
        page.wait_for_selector("#files >> text=the answer begins with a search")
        assert service.documents == {"book.pdf": book}
        visit.ask("What is x?")
        page.wait_for_selector("text=I do not know.")
        (sent,) = service.sent("/v1/execute")
        assert sent["message"] == "book.pdf is in the documents.\n\nWhat is x?"
        assert sent["force_tool"] == "mcp__knowledge__search_documents"
