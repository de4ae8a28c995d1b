"""Pictures on the page: ``rkllm-mcp serve`` with a model that sees on the emulated NPU, and a real Chromium."""

from __future__ import annotations

import base64
import io
from collections.abc import Generator
from typing import TYPE_CHECKING, Any

import pytest
from PIL import Image

from tests.support.browser import DESKTOP, PHONE, visiting
from tests.support.person import Touch
from tests.support.pictures import BLUE_ABOVE_RED, GREEN_ABOVE_WHITE, RED_ABOVE_BLUE, saved, stripes
from tests.support.seeing_page import CHIP, IMAGE, file, give, seeing_board
from tests.support.tour_board import serving

if TYPE_CHECKING:
    from playwright.sync_api import Browser


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Generator[str]:
    """The page of a board whose model sees."""
    with serving(seeing_board(tmp_path_factory.mktemp("seeing"))) as (url, _):
        yield url


def test_pictures_are_described_first_second_after_a_text_and_after_a_reload(browser: Browser, address: str) -> None:
    with visiting(browser, address, PHONE, has_touch=True) as visit:
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


def test_a_finger_takes_a_photo_removes_one_and_queues_a_question_with_another(browser: Browser, address: str) -> None:
    phone: dict[str, Any] = {"has_touch": True, "is_mobile": True, "locale": "ja-JP"}
    with visiting(browser, address, PHONE, **phone) as visit:
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


def test_a_model_that_does_not_see_says_so_and_the_one_that_does_is_a_tap_away(browser: Browser, address: str) -> None:
    with visiting(browser, address, DESKTOP) as visit:
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


REFUSED = (
    ("drawing.svg", "image/svg+xml", b"<svg xmlns='http://www.w3.org/2000/svg'/>", "cannot read the picture"),
    ("cut.png", "image/png", RED_ABOVE_BLUE[:40], "cannot read the picture"),
    # A header says how large the picture is; nothing of it is decoded.
    ("huge.png", "image/png", b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0:\x98\0\x004X" + bytes(40), "40 megapixels"),
)


def test_a_picture_that_is_not_taken_costs_a_sentence(browser: Browser, address: str) -> None:
    with visiting(browser, address, PHONE) as visit:
        for name, kind, data, words in REFUSED:
            give(visit, "drop", name, data, kind)
            visit.page.wait_for_selector(f"#files .refused >> text={words}")
            assert "You said hello" in visit.answered("hello")
        for number in range(9):
            give(visit, "drop", f"{number}.png", BLUE_ABOVE_RED)
        visit.page.wait_for_selector("#files .refused >> text=up to 8 pictures")
