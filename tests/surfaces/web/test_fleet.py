"""The page of several boards, in a real Chromium: what answers, where, what a person has set, and who waits."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.support.browser import DESKTOP, PHONE, Visit, visiting
from tests.support.page_service import Json, PageService, running, text
from tests.support.pictures import RED_ABOVE_BLUE

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Route

OWN: Json = {"id": "qwen3-1.7b", "loaded": True, "capabilities": ["chat"], "board": ""}
LARGE: Json = {"id": "qwen3-4b", "loaded": True, "capabilities": ["chat"], "board": "large"}
EYE: Json = {"id": "qwen3-vl-2b", "loaded": True, "capabilities": ["chat", "vision"], "board": "eye"}


# Where the button of the model and its text begin, whether the board's name is whole, and where the window ends.
HEADER = """() => {
  const button = document.querySelector("#model"), text = document.createRange();
  const place = button.querySelector(".place");
  text.selectNodeContents(button);
  const { right } = document.querySelector("#emulated").getBoundingClientRect();
  return {
    button: button.getBoundingClientRect().left,
    text: text.getBoundingClientRect().left,
    isWhole: place.scrollWidth <= place.clientWidth && place.getBoundingClientRect().right <= right,
    isCut: button.firstChild.scrollWidth > button.firstChild.clientWidth,
    isInside: right <= innerWidth,
  };
}"""


def fleet(*, shared: bool = True) -> PageService:
    answers = {"x": [text("Here.")], "y": [text("There.")]}
    return PageService(answers, models=[OWN, LARGE, EYE], several={"board": "board1", "shared": shared})


def attach_picture(visit: Visit) -> None:
    visit.page.click("#attach")
    with visit.page.expect_file_chooser() as chooser:
        visit.page.get_by_role("menuitem", name="Choose files").click()
    chooser.value.set_files([{"name": "a.png", "mimeType": "image/png", "buffer": RED_ABOVE_BLUE}])
    visit.page.wait_for_selector("#files >> text=This model cannot read images.")


def test_the_menu_offers_what_any_board_answers_and_each_question_names_the_chosen_one(browser: Browser) -> None:
    with running(fleet()) as service, visiting(browser, service.url, DESKTOP) as visit:
        page = visit.page
        page.wait_for_selector("#model >> text=qwen3-1.7b · board1")
        visit.answered("x")
        page.click("#model")
        page.get_by_role("menuitemradio", name="qwen3-4b").filter(has_text="large · ready").click()
        page.wait_for_selector("#model >> text=qwen3-4b · large")
        visit.answered("y")
        asked = [(body["message"], body.get("model")) for body in service.sent("/v1/execute")]
        assert asked == [("x", None), ("y", "qwen3-4b")]
        assert service.count("/v1/models:load") == 0
        # What a person has chosen is the assistant's: another browser shows it.
        assert service.settings == {"model": "qwen3-4b"}
        with visiting(browser, service.url, DESKTOP) as other:
            other.page.wait_for_selector("#model >> text=qwen3-4b · large")


def test_at_a_board_with_another_model_the_header_names_what_the_proxy_asks(browser: Browser) -> None:
    service = fleet()
    service.models = [{**EYE, "board": ""}, {**OWN, "board": "board1"}]
    service.several |= {"board": "eye", "model": EYE["id"], "first_model": OWN["id"]}
    with running(service), visiting(browser, service.url, DESKTOP) as visit:
        visit.page.wait_for_selector("#model >> text=qwen3-1.7b · board1")
        attach_picture(visit)
        visit.page.get_by_role("button", name="Answer with qwen3-vl-2b, which can").click()
        visit.page.wait_for_selector("#model >> text=qwen3-vl-2b · eye")
        visit.answered("x")
        assert [body["model"] for body in service.sent("/v1/execute")] == [EYE["id"]]
        # While no board answers with it, the page's own does.
        service.settings, service.models = {}, [{**EYE, "board": ""}, LARGE]
        with visiting(browser, service.url, DESKTOP) as other:
            other.page.wait_for_selector("#model >> text=qwen3-vl-2b · eye")


def test_settings_of_the_page_are_the_same_in_another_browser(browser: Browser) -> None:
    with running(fleet()) as service, visiting(browser, service.url, DESKTOP) as visit:
        visit.open_panel("settings")
        with visit.page.expect_response("**/v1/me/settings"):
            visit.page.get_by_role("radio", name="Dark").click()
        with visit.page.expect_response("**/v1/me/settings"):
            visit.page.get_by_role("radio", name="日本語").click()
        assert service.settings == {"theme": "dark", "language": "ja"}
        with visiting(browser, service.url, DESKTOP) as other:
            other.page.wait_for_selector("html[lang=ja]")
            assert other.page.locator("#dark").get_attribute("media") == "all"


def test_a_picture_goes_to_the_board_that_sees(browser: Browser) -> None:
    with running(fleet()) as service, visiting(browser, service.url, DESKTOP) as visit:
        attach_picture(visit)
        visit.page.get_by_role("button", name="Answer with qwen3-vl-2b of eye, which can").click()
        visit.page.wait_for_selector("#files >> text=This model cannot read images.", state="detached")
        visit.answered("x")
        [body] = service.sent("/v1/execute")
        assert (body["model"], len(body["pictures"])) == ("qwen3-vl-2b", 1)


def test_without_one_store_the_page_names_the_board_that_sees_and_offers_its_own_models_alone(browser: Browser) -> None:
    with running(fleet(shared=False)) as service, visiting(browser, service.url, DESKTOP) as visit:
        attach_picture(visit)
        visit.page.wait_for_selector("text=qwen3-vl-2b of eye can. Ask it on that board’s own page.")
        visit.page.click("#model")
        visit.page.wait_for_selector("text=More models…")
        assert visit.page.get_by_role("menuitemradio").count() == 0


def test_a_panel_names_its_board_where_each_board_has_its_own(browser: Browser) -> None:
    with running(fleet()) as service, visiting(browser, service.url, DESKTOP) as visit:
        said = {"servers": "own servers", "models": "own downloads", "documents": "own documents", "board": "others"}
        for name, part in said.items():
            visit.open_panel(name)
            visit.page.wait_for_selector(f".panel-board >> text=Of board1 >> text={part}")
        visit.open_panel("settings")
        visit.page.wait_for_selector(".panel-board", state="hidden")
    # One knowledge server for all has the same documents at each; and where there is one board nothing is said.
    knowledge = {"name": "knowledge", "transport": "http", "status": "ready"}
    alone, shared = PageService({}), fleet()
    shared.servers = [*shared.servers, knowledge]
    for service, name in ((shared, "documents"), (alone, "models")):
        with running(service) as served, visiting(browser, served.url, DESKTOP) as visit:
            visit.open_panel(name)
            visit.page.wait_for_load_state("networkidle")
            assert visit.page.is_hidden(".panel-board")


def test_a_phone_shows_a_long_model_with_its_whole_board_and_the_board_panel_says_who_is_away_in_japanese(
    browser: Browser,
) -> None:
    away: Json = {
        "running": None,
        "waiting": None,
        "temperature_c": None,
        "model": None,
        "address": "192.168.1.13:8080",
    }
    listed = [{**away, "name": "eye", "state": "not reachable (All connection attempts failed)"}]
    service = fleet()
    service.models = [{**OWN, "id": "a-model-with-a-name-that-is-longer-than-a-phone"}, LARGE]
    service.several |= {"model": service.models[0]["id"], "emulated": True}
    with running(service), visiting(browser, service.url, PHONE, locale="ja-JP") as visit:
        visit.page.wait_for_selector("#model .place >> text=board1")
        visit.page.wait_for_selector("#emulated")
        header = visit.page.evaluate(HEADER)
        assert header["text"] >= header["button"]
        assert (header["isWhole"], header["isCut"], header["isInside"]) == (True, True, True)
        visit.page.route("**/v1/boards", lambda route: route.fulfill(json={"boards": listed}))
        visit.open_panel("board")
        visit.page.wait_for_selector("#panel-content dd >> text=/^接続できません$/")


def test_who_waits_in_the_proxy_sees_how_many_wait_before(browser: Browser) -> None:
    service = fleet()
    service.waiting = 3
    with running(service), visiting(browser, service.url, DESKTOP) as visit:
        page = visit.page
        # The proxy holds the question until a board is free.
        held: list[Route] = []

        def hold(route: Route) -> None:
            held.append(route)

        page.route("**/v1/execute", hold)
        visit.ask("x")
        page.wait_for_selector("text=Waiting: 3 before you")
        # Those that come later wait after it.
        service.waiting = 5
        page.wait_for_timeout(1200)
        service.waiting = 1
        page.wait_for_selector("text=Waiting: 1 before you")
        for route in held:
            route.continue_()
        page.wait_for_selector("text=Here.")
