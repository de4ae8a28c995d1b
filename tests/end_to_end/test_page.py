"""The page as a person meets it: ``rkllm-mcp serve`` on the emulated NPU, real MCP servers, a real Chromium."""

from __future__ import annotations

import base64
import io
import socket
import threading
from collections.abc import Generator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx2
import pytest
from PIL import Image

from tests.models.test_suggestions import SETS
from tests.support import chat_script, clients
from tests.support.browser import DESKTOP, OFFLINE, PATIENCE_MS, PHONE, visiting
from tests.support.cut_line import CutLine
from tests.support.demo_app import Demo, make_demo
from tests.support.feature_demo import make_features
from tests.support.person import Touch
from tests.support.pictures import BLUE_ABOVE_RED, GREEN_ABOVE_WHITE, RED_ABOVE_BLUE, saved, stripes
from tests.support.seeing_page import CHIP, IMAGE, file, give, seeing_board
from tests.support.served import scripted_model
from tests.support.tour_board import serving

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Route


def test_a_person_asks_uses_what_servers_offer_reloads_and_looks_around(browser: Browser, tmp_path: Path) -> None:
    demo = make_features(tmp_path)
    with serving(demo) as (address, _), visiting(browser, address, PHONE) as visit:
        page = visit.page
        assert "secretary runs on the emulated NPU" in page.inner_text("#welcome")
        assert "Paris." in visit.answered("What is the capital of France?")
        assert page.is_visible("#emulated")

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
        page.get_by_role("menuitem", name="Resource of a server").click()
        page.get_by_role("button", name="memo://monday").click()
        page.wait_for_selector("#files >> text=tokens")

        visit.reload()
        page.wait_for_selector("text=Paris.")
        assert page.locator(".card.tool").count() >= 1
        assert page.inner_text("#title") == "What is the capital of France?"

        visit.open_panel("servers")
        page.get_by_role("switch", name="Server desk").click()
        page.wait_for_selector("[role=switch][aria-label='Server desk'][aria-checked=false]")
        page.get_by_text("Activity").click()
        page.wait_for_selector(".timeline")
        assert "ask_address" in page.inner_text(".panel-body table")
        page.click("#tab-board")
        page.wait_for_selector(".measure")
        assert "secretary" in page.inner_text(".facts")
        page.click("#panel-close")

        assert {found for found in visit.addresses if not found.startswith((address, "blob:"))} == set()


WORDS = " ".join(f"w{number}" for number in range(75))
LAST = "w74"
RULES = f"""
rule
  user at length
  say {WORDS}
"""


def slow_demo(folder: Path) -> Demo:
    """A model that needs several seconds for its answer to 'at length'."""
    model = scripted_model(folder / "model", RULES, speed="prefill 5000 decode 30")
    return make_demo(folder / "home", (), path=model, speed="")


@pytest.fixture(scope="module")
def slow_board(tmp_path_factory: pytest.TempPathFactory) -> Generator[str]:
    """The address of a board with the slow model."""
    with serving(slow_demo(tmp_path_factory.mktemp("slow"))) as (address, _):
        yield address


@pytest.fixture
def line(slow_board: str) -> Generator[CutLine]:
    """A line to it that can be cut."""
    with CutLine(int(slow_board.rpartition(":")[2])) as between:
        yield between


def test_a_second_tab_that_lost_the_answer_reads_on_and_takes_the_question_for_no_draft(
    browser: Browser, slow_board: str, line: CutLine
) -> None:
    with visiting(browser, slow_board, PHONE) as first:
        first.ask("at length")
        first.page.wait_for_selector(".message.assistant .prose >> text=w1")
        hash_of_conversation = first.page.url.partition("#")[2]
        with visiting(browser, f"{line.url}/#{hash_of_conversation}", PHONE) as second:
            second.page.wait_for_selector(".message.assistant .prose >> text=w1")
            line.cut()
            second.page.wait_for_selector("text=the board goes on with the answer")
            # What the page does when the phone shows another tab.
            second.page.evaluate("dispatchEvent(new Event('pagehide'))")
            line.mend()
            second.reload()
            assert second.page.input_value("#question") == ""
            second.page.wait_for_selector("#stop", state="hidden")
            assert second.page.locator(".message.user").count() == 1
            assert second.page.inner_text(".message.assistant .prose") == WORDS


def test_an_answer_goes_on_with_the_connection_while_another_request_hangs(browser: Browser, line: CutLine) -> None:
    with visiting(browser, line.url) as visit:
        page = visit.page
        visit.ask("at length")
        page.wait_for_selector(".message.assistant .prose >> text=w1")
        page.route("**/v1/conversations?**", lambda _: None)
        with page.expect_request("**/v1/conversations?**"):
            page.evaluate("dispatchEvent(new Event('focus'))")
        line.cut()
        page.wait_for_selector("text=the board goes on with the answer")
        line.mend()
        page.wait_for_selector("#stop", state="hidden")
        assert page.inner_text(".message.assistant .prose") == WORDS


def test_an_answer_that_was_broken_off_with_the_board_is_shown_as_such_and_asked_again(
    browser: Browser, tmp_path: Path
) -> None:
    demo = slow_demo(tmp_path)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with serving(demo, port) as (address, process), visiting(browser, address) as visit:
        page = visit.page
        visit.ask("at length")
        page.wait_for_selector(".message.assistant .prose >> text=w1")
        process.kill()
        process.wait()
        page.wait_for_selector(OFFLINE)
        with serving(demo, port):
            page.wait_for_selector("text=This answer was broken off")
            page.wait_for_selector("#stop", state="hidden")
            page.locator(".notice").get_by_role("button", name="Ask again").click()
            page.wait_for_selector(f"text={LAST}")
            page.wait_for_selector("#stop", state="hidden")
            assert page.locator(".message.assistant .prose").all_inner_texts() == [WORDS]
            visit.reload()
            page.wait_for_selector(f"text={LAST}")
            assert page.locator(".message").count() == 2
            assert not page.locator(".notice >> text=Ask again").count()


# Together they have every server of ``SETS``.
@pytest.mark.parametrize("servers", ["demo", "setup"])
def test_every_suggestion_is_answered_when_it_is_clicked(browser: Browser, tmp_path: Path, servers: str) -> None:
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "notes.txt").write_text("tea\n", "utf-8")
    demo = make_demo(tmp_path, (), extra=SETS[servers])
    with serving(demo) as (address, _), visiting(browser, address, PHONE) as visit:
        page = visit.page
        page.wait_for_selector(".suggestion")
        for number in range(page.locator(".suggestion").count()):
            question = page.locator(".suggestion").nth(number).inner_text()
            page.locator(".suggestion").nth(number).click()
            allow = page.get_by_role("button", name="Allow once")
            if question.startswith("Save"):
                allow.click()
            page.wait_for_selector(".thread > :last-child .prose")
            page.wait_for_selector("#stop", state="hidden")
            if (page.locator(".card.tool").count()) == 0:
                # Any model can answer it, and the script says that it is not one.
                assert "emulated model" in page.inner_text(".thread > :last-child")
            else:
                assert page.get_attribute(".thread > :last-child .card.tool", "data-state") == "done", question
                assert "emulated model" not in page.inner_text(".thread > :last-child"), question
            page.goto(address)
            page.wait_for_selector(".suggestion")


# --- pictures, for a model that sees ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def seeing(tmp_path_factory: pytest.TempPathFactory) -> Generator[str]:
    """The page of a board whose model sees."""
    with serving(seeing_board(tmp_path_factory.mktemp("seeing"))) as (url, _):
        yield url


def test_pictures_are_described_first_second_after_a_text_and_after_a_reload(browser: Browser, seeing: str) -> None:
    with visiting(browser, seeing, PHONE, has_touch=True) as visit:
        page = visit.page
        give(visit, "paste", "image.png", RED_ABOVE_BLUE)
        page.wait_for_selector(CHIP)
        assert "It is red above, blue below." in visit.answered("What is it?")
        assert page.locator("#files *").count() == 0
        assert "You said hello" in visit.answered("hello")
        give(visit, "drop", "photo.jpg", stripes(((20, 40, 220), (220, 20, 20)), kind="JPEG"), "image/jpeg")
        page.wait_for_selector(CHIP)
        # A picture is a question by itself.
        page.press("#question", "Control+Enter")
        page.wait_for_selector("text=It is blue above, red below.")
        page.wait_for_selector("#stop", state="hidden")
        visit.reload()
        page.wait_for_selector(f".bubble {IMAGE}[src^='blob:'] >> nth=1")
        assert "Still" not in visit.answered("and now?")
        # The stored picture is asked about again.
        first = page.locator(".message.user").first
        first.focus()
        first.get_by_role("button", name="Edit").click()
        page.get_by_role("textbox", name="Edit").fill("Once more")
        page.get_by_role("button", name="Edit and ask").click()
        page.wait_for_selector("#stop", state="hidden")
        assert page.locator(".message").count() == 2
        assert "It is red above, blue below." in page.inner_text(".thread > :last-child")
        page.locator(".bubble .thumbnail").click()
        page.wait_for_selector("dialog img.picture-large[src^='blob:']")
        page.keyboard.press("Escape")
        page.wait_for_selector("dialog", state="detached")


def test_a_finger_takes_a_photo_removes_one_and_queues_a_question_with_another(browser: Browser, seeing: str) -> None:
    phone: dict[str, Any] = {"has_touch": True, "is_mobile": True, "locale": "ja-JP"}
    with visiting(browser, seeing, PHONE, **phone) as visit:
        person, page = Touch(visit.page, "ja"), visit.page

        def photo(name: str, data: bytes) -> None:
            person.press("Add", "追加")
            camera = file(name, data)
            person.choose_files(lambda: person.press("Take a photo", "写真を撮る", "menuitem"), camera)
            page.wait_for_selector(f"#files >> text={name}")

        photo("one.png", RED_ABOVE_BLUE)
        photo("two.png", GREEN_ABOVE_WHITE)
        person.press("Leave the file out", "ファイルを外す")
        person.sees_no("two.png", "two.png")
        person.answered("What is it?", "これは何？")
        person.sees("It is red above, blue below.", "It is red above, blue below.")
        assert page.locator(f".bubble {IMAGE}").count() == 1
        person.has_not_moved_sideways()
        # Named for its picture, and large enough for a finger.
        person.press("Show picture 1", "画像 1 を表示")
        page.wait_for_selector("dialog img.picture-large[src^='blob:']")
        person.press("Close", "閉じる")


def test_a_model_that_does_not_see_says_so_and_the_one_that_does_is_a_tap_away(browser: Browser, seeing: str) -> None:
    with visiting(browser, seeing, DESKTOP) as visit:
        page = visit.page
        page.click("#model")
        page.get_by_role("menuitemradio", name="blind").or_(page.get_by_role("menuitem", name="blind")).click()
        page.wait_for_selector("#model >> text=/^blind$/")
        give(visit, "drop", "a.png", RED_ABOVE_BLUE)
        page.wait_for_selector("#files >> text=This model cannot read images.")
        page.get_by_role("button", name="Answer with seeing, which can").click()
        page.wait_for_selector("#files >> text=This model cannot read images.", state="detached")
        assert "It is red above, blue below." in visit.answered("What is it?")
        # A turned photo is upright in the question, and small: 4000 x 3000 pixels are sent as 1344 x 1008.
        photo = Image.new("RGB", (4000, 3000), (20, 40, 220))
        photo.paste((220, 20, 20), (0, 0, 2000, 3000))
        exif = Image.Exif()
        exif[0x0112] = 6
        with page.expect_request("**/v1/execute") as asked:
            give(visit, "drop", "turned.jpg", saved(photo, "JPEG", exif=exif), "image/jpeg")
            page.wait_for_selector(CHIP)
            assert "It is red above, blue below." in visit.answered("And this?")
        body: Any = asked.value.post_data_json
        received: Image.Image = Image.open(io.BytesIO(base64.b64decode(body["pictures"][0])))
        with received:
            assert (received.size, received.format, dict(received.getexif())) == ((1008, 1344), "JPEG", {})


def test_a_picture_goes_with_a_question_asked_before_the_models_are_known(browser: Browser, seeing: str) -> None:
    with visiting(browser, seeing, DESKTOP) as visit:
        lists: list[Route] = []

        def hold(route: Route) -> None:
            lists.append(route)

        visit.page.route("**/v1/models", hold)
        visit.page.reload()
        give(visit, "drop", "a.png", RED_ABOVE_BLUE)
        visit.page.wait_for_selector(CHIP)
        assert "cannot read images" not in visit.page.inner_text("#files")
        assert "It is red above, blue below." in visit.answered("What is it?")
        assert lists
        for each in lists:
            each.abort()


REFUSED = (
    ("drawing.svg", "image/svg+xml", b"<svg xmlns='http://www.w3.org/2000/svg'/>", "cannot read the picture"),
    ("cut.png", "image/png", RED_ABOVE_BLUE[:40], "cannot read the picture"),
    # A header says how large the picture is; nothing of it is decoded.
    ("huge.png", "image/png", b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0:\x98\0\x004X" + bytes(40), "40 megapixels"),
)


def test_a_picture_that_is_not_taken_costs_a_sentence(browser: Browser, seeing: str) -> None:
    with visiting(browser, seeing, PHONE) as visit:
        for name, kind, data, words in REFUSED:
            give(visit, "drop", name, data, kind)
            visit.page.wait_for_selector(f"#files .refused >> text={words}")
            visit.ask("hello")
            visit.page.wait_for_selector(f"#files [role=alert] >> text=Not sent: {name} cannot go with the question.")
            visit.page.locator("#files .file button").click()
            assert "You said hello" in visit.answered("hello")
        for number in range(9):
            give(visit, "drop", f"{number}.png", BLUE_ABOVE_RED)
        visit.page.wait_for_selector("#files .refused >> text=up to 8 pictures")


# --- pages of other origins: the one that cors names may, another may not ---------------------------------------------

SETTINGS = """
[[servers]]
name = "own"
transport = "builtin"
tools = [{{ name = "calculator" }}]

[service]
cors = ["http://127.0.0.1:{port}"]
"""
# What OpenAI's client sends from a page: headers of its own need a preflight. The answer is read piece by piece.
ASK = """async (url) => {
    const headers = { Authorization: "Bearer none", "Content-Type": "application/json", "X-Stainless-Lang": "js" };
    const body = JSON.stringify({ messages: [{ role: "user", content: "hello from oslo" }], stream: true });
    try {
        const answer = await fetch(`${url}/v1/chat/completions`, { method: "POST", headers, body });
        const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
        let text = "";
        for (let piece = await reader.read(); !piece.done; piece = await reader.read()) text += piece.value;
        return { status: answer.status, text, id: answer.headers.get("X-Request-Id") };
    } catch (error) {
        return { error: error.name };
    }
}"""
# A request that a browser sends without asking first, as a form would; the page cannot read the answer.
SLIP = """async (url) => {
    const answer = await fetch(`${url}/v1/tools/calculator:disable`, { method: "POST", mode: "no-cors" });
    return answer.type;
}"""


class EmptyPage(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.end_headers()
        self.wfile.write(b"<!doctype html><title>Another page</title>")

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        """Say nothing."""


@contextmanager
def another_site() -> Generator[int, None, None]:
    """A site with an empty page; yields its port."""
    with ThreadingHTTPServer(("127.0.0.1", 0), EmptyPage) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server.server_address[1]
        finally:
            server.shutdown()
            thread.join()


def run(browser: Browser, page_url: str, script: str, url: str) -> Any:
    """What a script of a page comes to."""
    context = browser.new_context()
    context.set_default_timeout(PATIENCE_MS)
    try:
        page = context.new_page()
        page.goto(page_url)
        return page.evaluate(script, url)
    finally:
        context.close()


def test_a_page_of_another_origin_uses_the_board_only_where_cors_names_it(browser: Browser, tmp_path: Path) -> None:
    model = scripted_model(tmp_path / "model", chat_script.RULES)
    with another_site() as port:
        demo = clients.scripted_demo(tmp_path / "home", model, extra=SETTINGS.format(port=port))
        with clients.serving(demo) as service:
            answered = run(browser, f"http://127.0.0.1:{port}/", ASK, service.url)
            assert answered["status"] == 200
            assert "data: [DONE]" in answered["text"]
            assert len(answered["id"]) == 32
            # The same site under another name is another origin.
            assert run(browser, f"http://localhost:{port}/", ASK, service.url) == {"error": "TypeError"}
            assert run(browser, f"http://localhost:{port}/", SLIP, service.url) == "opaque"
            (tool,) = httpx2.get(f"{service.url}/v1/tools", timeout=120).json()["tools"]
            assert (tool["name"], tool["enabled"]) == ("calculator", True)
