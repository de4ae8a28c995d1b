"""The page as a person meets it: ``rkllm-mcp serve`` on the emulated NPU, real MCP servers, a real Chromium."""

from __future__ import annotations

import re
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from tests.support.browser import PHONE, chromium, visiting
from tests.support.demo_app import Demo
from tests.support.feature_demo import make_features


@contextmanager
def serving(demo: Demo) -> Generator[str]:
    """The service's address, once its model is loaded."""
    with demo.started("serve", "--port", "0") as process:
        address = ""
        assert process.stderr is not None
        for line in process.stderr:
            if found := re.search(r"Serving at (http://[\d.]+:\d+)", line):
                address = found[1]
            if line.startswith("Ready"):
                break
        assert address
        yield address
        process.terminate()
        _, said = process.communicate(timeout=30)
        assert process.returncode == 0, said


def test_a_person_asks_allows_fills_in_reloads_and_looks_around(tmp_path: Path) -> None:
    demo = make_features(tmp_path)
    victim = tmp_path / "one.txt"
    victim.write_text("x", "utf-8")
    with serving(demo) as address, chromium() as browser, visiting(browser, address, PHONE) as visit:
        page = visit.page
        assert "secretary is emulated" in page.inner_text("#welcome")
        assert "Paris." in visit.answered("What is the capital of France?")

        visit.ask("Delete one.txt")
        page.get_by_role("button", name="Yes, this once").click()
        page.wait_for_selector("#stop", state="hidden")
        assert not victim.exists()
        assert page.get_attribute(".thread > :last-child .card.tool", "data-state") == "done"

        visit.ask("Who am I")
        page.get_by_label("Name").fill("Taro")
        page.get_by_label("Large").check()
        page.get_by_label("count").fill("3")
        page.locator(".question form [type=submit]").click()
        page.wait_for_selector("#stop", state="hidden")
        assert '"name":"Taro","size":"l","count":3' in page.inner_text(".thread > :last-child .prose")

        visit.ask("Let me log in")
        assert page.locator(".host").inner_text() == "example.com"
        page.keyboard.press("Escape")
        page.wait_for_selector("#stop", state="hidden")
        assert "Stopped." in page.inner_text(".thread > :last-child")

        page.click("#prompts")
        page.get_by_role("button", name="code_review").click()
        page.get_by_label("language").fill("rust")
        page.get_by_role("button", name="Ask", exact=True).click()
        page.wait_for_selector("text=The rust code is fine.")
        page.click("#attach")
        page.get_by_role("button", name="memo://monday").click()
        visit.await_question("@desk:memo://monday ")

        visit.reload()
        page.wait_for_selector("text=Paris.")
        assert page.locator(".past-call").count() >= 2
        assert page.inner_text("#title") == "What is the capital of France?"

        visit.open_panel("tools")
        page.get_by_role("switch", name="Server desk").click()
        page.wait_for_selector("[role=switch][aria-label='Server desk'][aria-checked=false]")
        page.click("#tab-history")
        page.wait_for_selector(".timeline")
        assert "delete_file" in page.inner_text(".panel-body table")
        page.click("#tab-board")
        page.wait_for_selector(".sparkline")
        assert "secretary" in page.inner_text(".facts")
        page.click("#panel-close")

        page.click("#manage")
        with page.expect_download() as download:
            page.get_by_role("button", name="Save as Markdown").click()
        assert "Paris." in Path(download.value.path()).read_text("utf-8")
        page.click("#manage")
        page.get_by_role("button", name="Delete").click()
        page.get_by_role("button", name="Delete").click()
        page.wait_for_selector("#welcome")
        assert {found for found in visit.addresses if not found.startswith((address, "blob:"))} == set()
