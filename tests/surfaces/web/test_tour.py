"""The tour of the page: its tasks by keyboard alone in English and by touch at 360 px in Japanese.

A real service answers on the emulated NPU with a scripted model and real servers. A task checks what its person sees.
Files come from the dialog of the system in both ways, as a drop needs a mouse; task 30 checks names and announcements
in place of a screen reader.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pytest

from tests.support import fake_hub
from tests.support.browser import DESKTOP, PHONE, READY, visiting
from tests.support.cut_line import CutLine
from tests.support.demo_app import Demo
from tests.support.demo_model import DEMO_TOKENIZER
from tests.support.fake_hub import FakeHub
from tests.support.imported import pdf
from tests.support.mcp_servers.web import Mcp, echoed, serving_beside
from tests.support.person import Keyboard, Person, Touch
from tests.support.rkllm_files import container
from tests.support.tour_board import serving, tour_demo
from tests.surfaces.cli.test_models import FACTS, FILE

if TYPE_CHECKING:
    from playwright.sync_api import Browser, FilePayload, Locator, Page

KEY = "a-key-of-the-tour"
KEYED = f'\n[[service.keys]]\nkey = "{KEY}"\n'
# What a board has in its configuration in addition, and how fast it reads, tokens per second.
BOARDS: Mapping[str, tuple[str, int]] = {
    "usual": ("", 20_000),
    "hurried": ("\n[security]\nquestion_timeout_s = 6\n", 20_000),
    "locked": (KEYED, 20_000),
    "slow": ("", 150),
    "equipped": (f"\n[security]\ninstall_servers = true\n{KEYED}", 20_000),
}


# What the hub has for a model of the catalogue.
HUB = {
    "Azurastar2903/Qwen2.5-1.5B-Instruct-rk3588-1.2.1": {FILE: container(FACTS, weights=bytes(range(256)) * 400)},
    "Qwen/Qwen2.5-1.5B-Instruct": {"tokenizer.json": DEMO_TOKENIZER.read_bytes()},
}


@dataclass
class Boards:
    """The boards of this file, each started when a task first needs it."""

    folder: Path
    running: ExitStack = field(default_factory=ExitStack)
    started: dict[str, tuple[Demo, str]] = field(default_factory=dict[str, tuple[Demo, str]])

    def get(self, name: str) -> tuple[Demo, str]:
        """A board and its address."""
        if name not in self.started:
            demo = tour_demo(self.folder / name, *BOARDS[name], is_equipped=name == "equipped")
            if name == "equipped":
                hub = self.running.enter_context(fake_hub.running(FakeHub(HUB)))
                hub_only = {"HF_ENDPOINT": hub.url, "NO_PROXY": "127.0.0.1,localhost"}
                demo = Demo(demo.folder, {**demo.environment, **hub_only})
            address, _ = self.running.enter_context(serving(demo))
            self.started[name] = (demo, address)
        return self.started[name]


@pytest.fixture(scope="module")
def boards(tmp_path_factory: pytest.TempPathFactory) -> Generator[Boards]:
    """No board yet; all end with the file."""
    found = Boards(tmp_path_factory.mktemp("tour"))
    with found.running:
        yield found


# --- the tasks --------------------------------------------------------------------------------------------------------


def opens_the_page_from_the_code_and_gives_the_key(person: Person, demo: Demo) -> None:
    """1. Open the page on a phone from the QR code, give the key."""
    page = person.page
    link = re.search(r"http://\S+#/link/\S+", demo.run("service", "link").stdout)
    assert link is not None
    page.goto(page.url.partition("#")[0].rstrip("/") + "/" + link[0][link[0].index("#") :])
    page.reload()
    person.sees("This device is linked", "この端末を登録しました")
    person.press("Keep on this device", "この端末に保存")
    person.sees("What can I do for you?", "何をお手伝いしましょうか？")
    open_panel(person, "Settings", "設定")
    person.sees("This window has a key.", "このウィンドウにはキーがあります。")
    person.press("Forget the key", "キーを消す")
    give_the_key(person)
    person.sees("This window has a key.", "このウィンドウにはキーがあります。")


def asks_a_suggested_question(person: Person, _: Demo) -> None:
    """2. Ask a suggested question on the empty page."""
    person.press("What time is it in London?", "ロンドンは今何時ですか？")
    person.sees("In London it is", "In London it is")


def writes_three_lines_with_an_input_method(person: Person, _: Demo) -> None:
    """3. Write a three-line question in Japanese with an input method."""
    page = person.page
    composing = cast("Any", page.context.new_cdp_session(page))
    field = page.get_by_label(person.say("Your question", "質問"), exact=True)
    person.go_into(field)
    for line, reading in enumerate(("ばんごう", "いち", "10")):
        end = len(reading)
        composing.send("Input.imeSetComposition", {"text": reading, "selectionStart": end, "selectionEnd": end})
        # This Enter belongs to the input method.
        composing.send("Input.dispatchKeyEvent", {"type": "rawKeyDown", "key": "Enter", "windowsVirtualKeyCode": 229})
        composing.send("Input.insertText", {"text": ("番号", "一", "10")[line]})
        if line < 2:
            person.new_line()
    assert field.input_value() == "番号\n一\n10"
    person.send()
    assert person.sees("番号 一 10", "番号 一 10", within=".message.user").inner_text() == "番号\n一\n10"
    person.sees("Number 10 it is.", "10 番ですね。")


def stops_an_answer_that_is_being_read(person: Person, _: Demo) -> None:
    """4. Stop an answer while it is reading; see when it stopped."""
    # The first question of a new board waits for its servers.
    person.ask("What time is it in London?", "ロンドンは今何時ですか？")
    person.sees("In London it is", "In London it is")
    person.is_over()
    copy(person.page, person.say("A sentence of some length is to be read. ", "そこそこ長い文を読ませます。") * 24)
    person.go_into(person.page.locator("#question"))
    # In one piece it would become a file.
    for _piece in range(3):
        person.paste()
    person.send()
    person.sees("2 s", "2 秒", within=".waiting-line")
    if not person.shortcut("Escape"):
        person.press("Stop the answer", "回答を止める")
    person.sees("Stopping when reading ends, in about", "プロンプト処理が終わりしだい停止します（約")
    person.sees("Stopped.", "中止しました。")
    person.is_over()
    assert person.page.locator(".go-on").count() == 0


def stops_an_answer_that_is_being_written_and_continues(person: Person, _: Demo) -> None:
    """5. Stop while it writes, then continue, also after a reload."""
    person.ask("Tell at length", "長く話して")
    person.sees("Line 2 of", "Line 2 of")
    stop(person)
    person.sees("Stopped. What was written is kept.", "停止しました。ここまでの回答は残っています。")
    person.sees_no("Line 50 of", "Line 50 of")
    person.page.reload()
    person.press("Continue", "続きを書く")
    person.sees("Line 50 of", "Line 50 of")
    person.is_over()
    lines = person.page.locator(".message.assistant .prose p").all_text_contents()
    assert lines == [f"Line {number} of a long answer." for number in range(1, 51)]
    assert (person.page.locator(".message").count(), person.page.locator(".go-on").count()) == (2, 0)


def asks_again_without_tools_and_compares(person: Person, _: Demo) -> None:
    """6. Ask again without tools; compare both versions."""
    person.answered("What time is it?", "今は何時？")
    person.sees("In London it is", "In London it is")
    person.press("Ask again", "もう一度尋ねる")
    person.press("Without tools", "ツールを使わずに尋ねる", "menuitem")
    person.sees("I have no clock.", "時計がありません。")
    person.is_over()
    person.press("Earlier version", "前の版")
    person.sees("In London it is", "In London it is")
    person.press("Later version", "次の版")
    person.sees("I have no clock.", "時計がありません。")
    person.press("Ask again", "もう一度尋ねる")
    person.press("What was sent to the model", "モデルに送った内容", "menuitem")
    person.sees("<|im_start|>", "<|im_start|>", "dialog")
    person.press("Close", "閉じる", within="dialog")


def edits_the_first_of_five_questions_and_goes_back(person: Person, _: Demo) -> None:
    """7. Edit the first of five questions, read the cost, go back to the old version."""
    for number in range(1, 6):
        person.answered(f"Number {number}", f"番号 {number}")
    person.sees("Number 5 it is.", "5 番ですね。")
    first = person.page.locator(".message.user").first
    person.show_actions(first)
    person.use(first.get_by_role("button", name=person.say("Edit", "編集"), exact=True))
    person.write("Edit", "編集", person.say("Number 77", "番号 77"), within=".editing")
    person.sees("tokens are read again", "トークンを再処理します")
    person.press("Edit and ask", "編集して尋ね直す")
    person.sees("Number 77 it is.", "77 番ですね。")
    person.is_over()
    person.sees_no("Number 5 it is.", "5 番ですね。")
    assert person.page.locator(".message").count() == 2
    person.press("Earlier version", "前の版")
    person.sees("Number 1 it is.", "1 番ですね。")
    person.page.reload()
    person.sees("Number 5 it is.", "5 番ですね。")
    assert person.page.locator(".message").count() == 10


def queues_a_second_question_changes_and_deletes_it(person: Person, _: Demo) -> None:
    """8. Queue a second question, change it, delete it."""
    person.ask("Tell at length", "長く話して")
    person.sees("Line 1 of", "Line 1 of")
    person.ask("Number 2", "番号 2")
    waiting = person.sees("Number 2", "番号 2", within="#queued")
    person.sees("Sent after this answer", "この回答のあとに送信します")
    person.press("Edit", "編集", within="#queued")
    waiting.wait_for(state="detached")
    person.page.wait_for_selector("#question:focus")
    person.type("2")
    person.send()
    person.sees("Number 22", "番号 22", within="#queued")
    person.press("Leave out", "取り消す", within="#queued")
    person.sees_no("Number 22", "番号 22")
    stop(person)
    person.sees("Stopped. What was written is kept.", "停止しました。ここまでの回答は残っています。")
    assert person.page.locator(".message.user").count() == 1


def allows_a_file_to_be_written_once_and_sees_what(person: Person, demo: Demo) -> None:
    """9. Allow a file to be written, once, and see what was written."""
    person.ask("Save it in once.txt", "once.txt に保存して")
    person.sees("Allow “write_file” to run?", "「write_file」の実行を許可しますか？")
    person.sees("Sunny, 21 degrees.", "Sunny, 21 degrees.")
    if not person.shortcut("Control+Alt+Enter"):
        person.press("Allow once", "今回だけ許可")
    person.sees("once.txt is written.", "once.txt に書きました。")
    person.unfold("Write a file", "ファイルに書き込む", within=".card")
    person.sees("Wrote once.txt (18 bytes).", "Wrote once.txt (18 bytes).")
    assert (demo.folder.parent / "files" / "once.txt").read_text("utf-8") == "Sunny, 21 degrees."


def refuses_a_call_and_finds_the_same_words_after_a_reload(person: Person, demo: Demo) -> None:
    """10. Refuse a call; reload; find the same words."""
    person.ask("Save it in refused.txt", "refused.txt に保存して")
    person.press("Don’t allow", "許可しない")
    person.sees("Then I leave it.", "では書きません。")
    person.is_over()
    person.sees("You did not allow this.", "許可しませんでした。")
    before = person.page.inner_text("#thread")
    person.page.reload()
    person.sees("You did not allow this.", "許可しませんでした。")
    person.sees("Then I leave it.", "では書きません。")
    assert person.page.inner_text("#thread") == before
    card = person.page.locator(".card.tool")
    assert card.get_attribute("data-state") == "refused"
    card.locator("summary").first.click()
    assert card.inner_text().count("refused.txt") == 1, "the arguments stand once"
    assert not (demo.folder.parent / "files" / "refused.txt").exists()


def allows_a_tool_always_and_takes_it_back(person: Person, _: Demo) -> None:
    """11. Allow a tool always, find that permission and take it back."""
    person.ask("Save it in always.txt", "always.txt に保存して")
    person.unfold("More choices", "ほかの選択肢")
    person.press("Always allow", "常に許可")
    person.sees("Servers takes it back", "「サーバー」で取り消せます")
    person.press("Always allow", "常に許可")
    person.sees("always.txt is written.", "always.txt に書きました。")
    person.is_over()
    open_panel(person, "Servers", "サーバー")
    person.unfold("Remembered permissions", "記憶された許可")
    person.sees("files / write_file", "files / write_file")
    person.press("Ask again", "再び確認する", within="#panel")
    person.sees("Nothing is allowed or refused for good.", "常に許可または拒否するものはありません。")


def understands_why_an_approval_ran_out(person: Person, _: Demo) -> None:
    """12. Let an approval run out; understand why nothing happened, also after a reload."""
    page, left = person.page, person.page.locator(".time-left")
    person.ask("Save it in late.txt", "late.txt に保存して")
    person.sees("Allow “write_file” to run?", "「write_file」の実行を許可しますか？")
    left.get_by_text("0:04").or_(left.and_(page.get_by_text("0:04"))).first.wait_for()
    assert left.get_attribute("role") == "timer"
    page.reload()
    assert re.search(r"0:0[1-4]\b", left.inner_text()), "it does not begin anew"
    for _look in range(2):
        person.sees("No answer in 6 seconds: not run.", "6 秒間応答がなかったため、実行しませんでした。", ".card")
        assert page.get_attribute(".card.tool", "data-state") == "refused"
        assert "approved in time" not in page.inner_text(".card.tool")
        person.is_over()
        page.reload()


def fills_in_a_form_and_declines_another(person: Person, _: Demo) -> None:
    """13. Fill in a server's form; decline another; find both after a reload."""
    person.ask("Book a table", "予約して")
    person.sees("Who are you?", "Who are you?")
    # The server's own words: it knows one language.
    person.write("Name (required)", "Name （必須）", "Taro")
    person.press("Large", "Large", "radio")
    person.press("Send", "送る", within=".question")
    person.sees("Booked for Taro.", "Taro 様で予約しました。")
    person.is_over()
    person.ask("Book another", "もう一つ予約して")
    person.press("Decline", "断る")
    person.sees("Not booked.", "予約しませんでした。")
    person.is_over()
    person.page.reload()
    person.sees("Sent.", "送りました。", ".card.question")
    assert "Taro" in person.page.locator(".card.question dl").first.inner_text()
    assert person.page.locator(".card.question form").count() == 0


def takes_the_passages_of_a_pdf_that_is_too_long(person: Person, _: Demo) -> None:
    """14. Attach a PDF that is too long and choose passages only."""
    give_the_key(person)

    def open_menu() -> None:
        person.press("Add", "追加")
        person.press("Choose files", "ファイルを選ぶ", "menuitem")

    person.choose_files(open_menu, handbook(f"{person.language}-14"))
    person.sees("fit into the model’s window", "モデルに入るのは約")
    person.press("Put it into the documents and use the passages that fit", "文書に登録して、関係する部分だけを使う")
    person.sees("the answer begins with a search", "回答は検索から始まります")
    person.answered("How many days of holiday in year 7?", "7 年目の休暇は？")
    person.sees("It is 17 days.", "17 日です。")


def turns_a_long_paste_back_into_text(person: Person, _: Demo) -> None:
    """15. Paste 5,000 characters; turn the file back into text."""
    page = person.page
    long = "0123456789 " * 455
    copy(page, long)
    person.go_into(page.locator("#question"))
    person.paste()
    person.sees("Pasted text", "貼り付けた文章")
    person.press("Paste as text", "文章として貼り付ける")
    person.sees_no("Pasted text", "貼り付けた文章")
    assert page.input_value("#question").strip() == long.strip()


def pastes_a_photo_for_a_model_that_reads_none(person: Person, _: Demo) -> None:
    """16. Paste a photo to a model that reads none."""
    page = person.page
    page.evaluate("""async () => {
      const canvas = new OffscreenCanvas(4, 4);
      canvas.getContext("2d").fillRect(0, 0, 4, 4);
      const photo = await canvas.convertToBlob({ type: "image/png" });
      await navigator.clipboard.write([new ClipboardItem({ "image/png": photo })]);
    }""")
    person.go_into(page.locator("#question"))
    person.paste()
    person.sees("This model cannot read images.", "このモデルは画像を読めません。")
    person.press("Leave the file out", "ファイルを外す")
    person.sees_no("This model cannot read images.", "このモデルは画像を読めません。")


def gives_two_files_and_removes_one(person: Person, _: Demo) -> None:
    """17. Drop two files onto the page; remove one."""

    def open_menu() -> None:
        person.press("Add", "追加")
        person.press("Choose files", "ファイルを選ぶ", "menuitem")

    files: list[FilePayload] = [
        {"name": name, "mimeType": "text/plain", "buffer": text.encode()}
        for name, text in (("one.txt", "The first."), ("two.txt", "The second."))
    ]
    person.choose_files(open_menu, *files)
    person.sees("one.txt", "one.txt")
    person.sees("two.txt", "two.txt")
    person.press("Leave the file out", "ファイルを外す")
    person.sees_no("two.txt", "two.txt")
    person.answered("How many lines?", "何行ですか？")
    person.sees("The first.", "The first.", within=".message.user")
    person.sees_no("The second.", "The second.")


def copies_an_answer_its_code_and_its_table_and_reads_what_is_wide(person: Person, _: Demo) -> None:
    """18, 19. Copy an answer, one code block, one table into a sheet; read what is wide without the page moving."""
    page = person.page
    person.answered("Show a wide table", "広い表を見せて")
    for place, start, end in (
        (".code .copy", "total = value_0 + ", "# the end"),
        (".prose > div:has(table) .copy", "place\tday 1\tday 2", "\t14 degrees"),
        (".message-foot .copy", "```python\ntotal", "That is all."),
    ):
        person.use(page.locator(f".message.assistant {place}"))
        person.sees("Copied", "コピーしました")
        copied = page.evaluate("navigator.clipboard.readText()").strip()
        assert (copied[: len(start)], copied[-len(end) :]) == (start, end)
        person.sees_no("Copied", "コピーしました")
    for place, last in ((".code pre", "# the end"), (".table", "14 degrees")):
        pane = page.locator(place)
        read_to_the_right(person, pane)
        person.sees(last, last, within=place)
        person.has_not_moved_sideways()


def scrolls_up_during_an_answer_and_jumps_to_the_end(person: Person, _: Demo) -> None:
    """20. Scroll up during an answer, read, jump to the end."""
    page = person.page
    person.ask("Tell at length", "長く話して")
    person.sees("Line 20 of", "Line 20 of")
    reading = page.locator("#thread").get_by_text("Line 1 of")
    person.scroll(page.locator("#messages"), -800)
    while not reading.evaluate(IN_SIGHT):
        person.scroll(page.locator("#messages"), -800)
    top = resting_place(reading)
    page.locator("#thread").get_by_text("Line 35 of").wait_for()
    assert abs(resting_place(reading) - top) < 1, f"what is read moves: {top}"
    person.press("To the end", "最後へ")
    person.sees("Line 50 of", "Line 50 of")


def locks_the_phone_during_an_answer(person: Person, _: Demo) -> None:
    """21. Lock the phone during an answer, come back, read on."""
    page = person.page
    with CutLine(int(page.url.rpartition(":")[2].partition("/")[0])) as line:
        page.goto(line.url)
        page.wait_for_selector(READY, state="attached")
        person.ask("Tell at length", "長く話して")
        person.sees("Line 5 of", "Line 5 of")
        line.cut()
        person.sees("the board goes on with the answer", "回答はボードで続いています")
        line.mend()
        person.sees("Line 50 of", "Line 50 of")
        person.is_over()
        assert page.locator(".message.assistant .prose p").count() == 50


def loses_the_network_while_writing(person: Person, _: Demo) -> None:
    """22. Lose the network while writing; nothing is lost."""
    page = person.page
    person.write("Your question", "質問", person.say("Number ", "番号 "))
    page.context.set_offline(True)
    person.type("22")
    person.send()
    person.sees("No connection to the board.", "ボードに接続できません。")
    person.sees("Number 22", "番号 22", within=".message.user")
    page.context.set_offline(False)
    person.sees_no("No connection to the board.", "ボードに接続できません。")
    person.press("Ask again", "もう一度尋ねる")
    person.sees("Number 22 it is.", "22 番ですね。")


def finds_a_conversation_of_last_week_by_a_word_of_a_call(person: Person, _: Demo) -> None:
    """23. Find a conversation of last week by a word from a tool call."""
    page = person.page
    person.answered("What time is it?", "今は何時？")
    page.clock.set_system_time(time.time() + 5 * 86_400)
    if not person.shortcut("Control+k"):
        person.press("Conversations and settings", "会話と設定")
    person.write("Search conversations", "会話を検索", "Europe/London")
    person.sees("Previous 7 days", "過去 7 日間")
    person.use(page.locator("#conversations a", has_text=person.say("What time is it?", "今は何時？")).first)
    person.sees("In London it is", "In London it is")


def pins_renames_exports_deletes_and_undoes(person: Person, _: Demo) -> None:
    """24. Pin, rename, export, delete, undo."""
    page = person.page
    name = person.say("A list", "リスト")
    person.answered("Number 24", "番号 24")

    def act(en: str, ja: str) -> None:
        person.press("This conversation", "この会話")
        person.press(en, ja, "menuitem")

    act("Rename", "タイトルを変更")
    person.write("Title", "タイトル", name)
    person.press("Save", "保存", within="dialog")
    person.sees(name, name, within="#title")
    act("Pin", "固定する")
    with page.expect_download() as download:
        act("Save as Markdown", "Markdown で保存")
    assert (download.value.suggested_filename, "24" in Path(download.value.path()).read_text("utf-8")) == (
        f"{name}.md",
        True,
    )
    act("Delete", "削除")
    person.sees("Deleted.", "削除しました。")
    person.press("Undo", "元に戻す")
    person.sees("Number 24 it is.", "24 番ですね。")
    if isinstance(person, Touch):
        person.press("Conversations and settings", "会話と設定")
    person.sees("Pinned", "固定", within="#conversations")
    person.sees(name, name, within="#conversations")


def adds_a_server_of_the_gallery_and_switches_it_off(person: Person, demo: Demo) -> None:
    """25. Add a server from the gallery, try it, see its tokens, switch it off."""
    give_the_key(person)
    name = person.say("time", "fetch")
    card = new_server(person, f"uvx mcp-server-{name}==")
    assert person.say("This will run on the board:", "ボード上で次のプログラムを実行します：") in card.inner_text()
    person.use(card.get_by_role("button", name=person.say("Try it first", "試してみる"), exact=True))
    works = person.say("It works. Tools: 7,", "動作しています。ツール: 7")
    card.get_by_text(works).wait_for()
    person.press("Add it", "追加する")
    person.page.locator(f"[data-control='test {name}']").wait_for()
    person.sees("tokens", "トークン", within="#panel")
    person.press(f"Server {name}", f"サーバー {name}", "switch")
    label = person.say(f"Server {name}", f"サーバー {name}")
    person.page.locator(f"[role=switch][aria-label='{label}'][aria-checked=false]").wait_for()
    assert f"mcp-server-{name}==" in demo.config.read_text("utf-8")


def adds_a_server_by_address_after_a_wrong_one(person: Person, demo: Demo) -> None:
    """26. Add one by address; understand a wrong address."""
    give_the_key(person)
    name = person.say("shop", "mise")
    with serving_beside(Mcp({"find_order": echoed})) as url:
        form = new_server(person, person.say("By address", "アドレスを指定"))
        for address, said in (
            ("shop.example.com", person.say("This has to be an address", "アドレス")),
            (
                "http://127.0.0.1:9/mcp",
                person.say("Nothing answers at this address.", "このアドレスに接続できません。"),
            ),
            (f"{url}/mcp", person.say("It works. Tools: 1,", "動作しています。ツール: 1")),
        ):
            person.write("Name (required)", "名前 （必須）", name, within="#panel")
            person.write("Address (required)", "アドレス （必須）", address, within="#panel")
            person.use(form.get_by_role("button", name=person.say("Try it first", "試してみる"), exact=True))
            form.get_by_text(said).last.wait_for()
        person.press("Add it", "追加する")
        person.page.locator(f"[data-control='test {name}']").wait_for()
    assert f"{url}/mcp" in demo.config.read_text("utf-8")


def adds_a_document_asks_about_it_and_opens_the_page(person: Person, _: Demo) -> None:
    """27. Add a document, try a search, ask about it, open the cited page."""
    give_the_key(person)
    open_panel(person, "Documents", "文書")
    make = person.control("Make one", "作成する")
    person.page.locator("#document-base option").or_(make).first.wait_for(state="attached")
    if make.count():
        person.use(make)
    name = f"{person.language}-27"
    person.choose_files(lambda: person.press("Add documents", "文書を追加"), handbook(name))
    person.sees(name, name, within=".documents")
    person.write("Try a search", "検索を試す", "holiday in year 7", within="#panel")
    person.page.keyboard.press("Enter")
    person.sees("17 days", "17 days", within="#panel")
    person.press("Close", "閉じる", within="#panel")
    person.answered("How many days of holiday in year 7?", "7 年目の休暇は？")
    person.sees("It is 17 days.", "17 日です。")
    person.unfold("Sources: ", "出典: ")
    person.use(person.page.locator(".sources .source").first)
    person.sees("In year 7 an employee has 17 days", "In year 7 an employee has 17 days", within=".passage mark")
    person.sees("p. 7", "7 ページ", within=".passage")
    person.press("Close", "閉じる", within="#panel")
    open_panel(person, "Documents", "文書")
    added = person.page.locator(".documents li", has_text=name)
    remove = person.say("Remove", "削除")
    person.use(added.get_by_role("button", name=remove).first)
    person.use(added.get_by_role("button", name=remove, exact=True).last)
    added.wait_for(state="detached")


def changes_the_model_while_one_loads_and_asks_at_once(person: Person, _: Demo) -> None:
    """28. Change model while one loads; ask at once."""
    give_the_key(person)
    for name in ("owl", "sparrow"):
        person.use(person.page.locator("#model"))
        person.use(person.page.get_by_role("menuitemradio", name=name))
    person.sees("Loading sparrow…", "sparrow を読み込んでいます…")
    person.answered("Who are you?", "誰ですか？")
    person.sees("I am the sparrow.", "I am the sparrow.")
    person.sees("sparrow", "sparrow", within="#main")
    assert person.page.inner_text("#model") == "sparrow"
    # As the next person of this board finds it.
    person.use(person.page.locator("#model"))
    person.use(person.page.get_by_role("menuitemradio", name="secretary"))
    person.page.locator("#model", has_text=re.compile("^secretary$")).wait_for()


def sees_why_the_board_is_slow(person: Person, _: Demo) -> None:
    """29. See why the board is slow: queue, heat, context."""
    person.ask("Tell at length", "長く話して")
    open_panel(person, "Board", "ボード")
    person.sees("1\u00a0running", "実行中\u00a01", within="#panel")
    person.sees("Temperature", "温度", within="#panel")
    person.press("Close", "閉じる", within="#panel")
    stop(person)


def changes_language_size_and_colours_and_allows_a_call_by_its_name(person: Person, _: Demo) -> None:
    """30. Change language, text size 200 %, dark; repeat task 9 with a screen reader."""
    page = person.page
    sizes = {"standard": 32, "fixed": 26}
    cast("Any", page.context.new_cdp_session(page)).send("Page.setFontSizes", {"fontSizes": sizes})
    open_panel(person, "Settings", "設定")
    person.press("Dark", "ダーク", "radio")
    person.press("日本語", "English", "radio")
    person.language = "en" if person.language == "ja" else "ja"
    person.press("Close", "閉じる", within="#panel")
    dark = "getComputedStyle(document.body).backgroundColor.match(/\\d+/g).every((part) => part < 64)"
    assert page.evaluate(dark)
    assert page.evaluate(FONT_SIZE) == 32
    person.ask("Save it in large.txt", "large.txt に保存して")
    name = person.say("Allow “write_file” to run?", "「write_file」の実行を許可しますか？")
    card = page.get_by_role("group", name=name)
    card.wait_for()
    said = person.say("Calling tool write_file", "ツール write_file を呼び出しています")
    page.locator("#announcements", has_text=said).wait_for(state="attached")
    person.use(card.get_by_role("button", name=person.say("Allow once", "今回だけ許可"), exact=True))
    person.sees("large.txt is written.", "large.txt に書きました。")
    person.has_not_moved_sideways()


# --- what several tasks do --------------------------------------------------------------------------------------------

FONT_SIZE = "parseFloat(getComputedStyle(document.querySelector('#question')).fontSize)"
IN_SIGHT = "(node) => { const box = node.getBoundingClientRect(); return box.top >= 0 && box.bottom <= innerHeight }"


def resting_place(place: Locator) -> float:
    """Where it is on the screen, once it does not move any more."""
    top = "(node) => node.getBoundingClientRect().top"
    seen = [place.evaluate(top)]
    while len(seen) < 4 or len(set(seen[-4:])) > 1:
        place.page.wait_for_timeout(100)
        seen.append(place.evaluate(top))
    return seen[-1]


def sends_a_question_when_the_board_is_back(person: Person, _: Demo) -> None:
    """31. Ask while the board is away and have it sent when it is back."""
    page = person.page
    person.answered("Number 30", "番号 30")
    page.context.set_offline(True)
    person.ask("Number 31", "番号 31")
    person.sees("No connection", "接続できません")
    person.sees("Number 30 it is.", "30 番ですね。")
    person.press("Send when the board is back", "ボードが復帰したら送信")
    page.context.set_offline(False)
    person.sees("Number 31 it is.", "31 番ですね。")


def downloads_a_model_and_removes_it(person: Person, _: Demo) -> None:
    """32. Find a model, download it, find it after a reload, remove it."""
    give_the_key(person)
    page = person.page
    name = "qwen2.5-1.5b"
    # The header moves until the page knows the board.
    page.locator("#welcome li button").first.wait_for()
    person.use(page.locator("#model"))
    person.press("More models…", "ほかのモデル…", "menuitem")
    person.write("Search models", "モデルを検索", name, within="#panel")
    page.wait_for_function("() => document.querySelectorAll('[data-model]').length === 1")
    card = page.locator(f"[data-model='{name}']")
    person.use(card.get_by_role("button", name=person.say("Download", "ダウンロード"), exact=True))
    card.get_by_role("button", name=person.say("Use it", "使う"), exact=True).wait_for()
    page.reload()
    give_the_key(person)
    open_panel(person, "Models", "モデル")
    person.use(card.get_by_role("button", name=person.say("Remove", "削除"), exact=True))
    person.sees(f"Remove {name} from the board?", f"{name} をボードから削除しますか？")
    person.use(card.locator(".outcome").get_by_role("button", name=person.say("Remove", "削除"), exact=True))
    person.write("Search models", "モデルを検索", name, within="#panel")
    card.get_by_role("button", name=person.say("Download", "ダウンロード"), exact=True).wait_for()


def looks_for_a_server_and_follows_an_install_link(person: Person, demo: Demo) -> None:
    """33. Look for a server in the registry's copy; open an install link and see that it adds nothing."""
    give_the_key(person)
    page, before = person.page, demo.config.read_text("utf-8")
    open_servers_to_add(person)
    person.write("Search servers", "サーバーを検索", "neon", within="#panel")
    page.wait_for_function("() => document.querySelectorAll('[data-registry]').length === 1")
    card = page.locator("[data-registry='com.neon/mcp']")
    person.use(card.get_by_role("button", name=person.say("Put it into the form", "フォームに入力")))
    has_address = "address => document.querySelector('[name=url]')?.value === address"
    page.wait_for_function(has_address, arg="https://mcp.neon.tech/mcp")
    page.evaluate("location.hash = '#add-server=https%3A%2F%2Fshop.example%2Fmcp&name=shop'")
    person.sees("Nothing was added or started", "まだ何も追加・起動していません", within="#panel")
    page.wait_for_function(has_address, arg="https://shop.example/mcp")
    assert demo.config.read_text("utf-8") == before


def sets_the_size_of_text_and_a_text_about_themselves_and_deletes_everything(person: Person, _: Demo) -> None:
    """34. Larger text, a text about me, the version; save everything and delete it."""
    give_the_key(person)
    page = person.page
    open_panel(person, "Settings", "設定")
    usual = page.evaluate(FONT_SIZE)
    person.press("Larger", "特大", "radio")
    assert page.evaluate(FONT_SIZE) > usual * 1.2
    page.reload()
    give_the_key(person)
    assert page.evaluate(FONT_SIZE) > usual * 1.2, "this browser remembers it"
    open_panel(person, "Settings", "設定")
    person.write("About me", "自分について", "Taro", within="#panel")
    person.press("Save", "保存", within="#panel")
    person.sees("Saved.", "保存しました。", within="#panel")
    with page.expect_download() as file:
        person.press("Save everything as a file", "すべてをファイルに保存")
    saved = Path(file.value.path()).read_text("utf-8")
    assert '"about": "Taro"' in saved
    deleting: list[str] = []
    page.on("request", lambda request: deleting.extend([request.url] if request.method == "DELETE" else []))
    person.press("Delete everything…", "すべて削除…")
    assert deleting == [], "one press deletes nothing"
    person.press("Delete everything for good", "完全に削除する")
    person.sees("Everything was deleted.", "すべて削除しました。")
    assert page.get_by_label(person.say("About me", "自分について")).input_value() == ""
    person.sees("rkllm-mcp 0.", "rkllm-mcp 0.", within="#panel")
    person.press("Close", "閉じる", within="#panel")
    page.locator("#welcome").wait_for()


def sees_how_a_phone_reaches_the_board(person: Person, _: Demo) -> None:
    """35. Find out how a phone reaches the board."""
    open_panel(person, "Settings", "設定")
    person.press("Address, key and settings to copy", "アドレス・キー・設定例を表示")
    person.sees("rkllm-mcp service link", "rkllm-mcp service link", within="dialog")
    person.press("Close", "閉じる", within="dialog")


def give_the_key(person: Person) -> None:
    """Give the page the key if it asks for one."""
    if person.page.locator("dialog").count():
        person.write("Key", "キー", KEY, within="dialog")
        person.press("Use this key", "このキーを使う")


def handbook(name: str) -> FilePayload:
    """A PDF of forty pages, a year on each, which takes more than the model's window and is no other one's copy."""
    pages = [
        [
            (60, 740, f"In year {year} an employee has {year + 10} days of holiday."),
            *(
                (60, 720 - 14 * line, f"Paragraph {line} of page {year} of {name} is about other things.")
                for line in range(30)
            ),
        ]
        for year in range(1, 41)
    ]
    return {"name": f"{name}.pdf", "mimeType": "application/pdf", "buffer": pdf(pages)}


def new_server(person: Person, words: str) -> Locator:
    """The server with these words among those that can be added."""
    open_servers_to_add(person)
    found = person.page.locator("#panel section.server", has_text=words)
    found.wait_for()
    return found


def open_servers_to_add(person: Person) -> None:
    """Open the servers that can be added, unless they are open already."""
    open_panel(person, "Servers", "サーバー")
    folded = person.folded("Add a server", "サーバーを追加", within="#panel")
    if not folded.evaluate("(node) => node.parentElement.open"):
        person.use(folded)


def stop(person: Person) -> None:
    """Stop the answer."""
    if not person.shortcut("Escape"):
        person.press("Stop the answer", "回答を止める")
    person.is_over()


def open_panel(person: Person, en: str, ja: str) -> None:
    """Open a panel, through the list on a phone."""
    if person.page.is_visible("#menu"):
        person.press("Conversations and settings", "会話と設定")
    person.press(en, ja, within="#sidebar")


def copy(page: Page, text: str) -> None:
    """Have a text in the clipboard, from another program."""
    page.evaluate("(text) => navigator.clipboard.writeText(text)", text)


def read_to_the_right(person: Person, pane: Locator) -> None:
    """Move what is wider than its place until its right end is seen."""
    if isinstance(person, Keyboard):
        person.go_to(pane)
    for _ in range(200):
        if pane.evaluate("(node) => node.scrollLeft + node.clientWidth >= node.scrollWidth - 2"):
            return
        if isinstance(person, Touch):
            person.swipe_left(pane, 300)
        else:
            person.page.keyboard.press("ArrowRight")
    raise AssertionError("its right end is not reached")


# --- the table --------------------------------------------------------------------------------------------------------

# The tasks by their numbers in the tour.
TASKS: Mapping[int, Callable[[Person, Demo], None]] = {
    1: opens_the_page_from_the_code_and_gives_the_key,
    2: asks_a_suggested_question,
    3: writes_three_lines_with_an_input_method,
    4: stops_an_answer_that_is_being_read,
    5: stops_an_answer_that_is_being_written_and_continues,
    6: asks_again_without_tools_and_compares,
    7: edits_the_first_of_five_questions_and_goes_back,
    8: queues_a_second_question_changes_and_deletes_it,
    9: allows_a_file_to_be_written_once_and_sees_what,
    10: refuses_a_call_and_finds_the_same_words_after_a_reload,
    11: allows_a_tool_always_and_takes_it_back,
    12: understands_why_an_approval_ran_out,
    13: fills_in_a_form_and_declines_another,
    14: takes_the_passages_of_a_pdf_that_is_too_long,
    15: turns_a_long_paste_back_into_text,
    16: pastes_a_photo_for_a_model_that_reads_none,
    17: gives_two_files_and_removes_one,
    18: copies_an_answer_its_code_and_its_table_and_reads_what_is_wide,
    20: scrolls_up_during_an_answer_and_jumps_to_the_end,
    21: locks_the_phone_during_an_answer,
    22: loses_the_network_while_writing,
    23: finds_a_conversation_of_last_week_by_a_word_of_a_call,
    24: pins_renames_exports_deletes_and_undoes,
    25: adds_a_server_of_the_gallery_and_switches_it_off,
    26: adds_a_server_by_address_after_a_wrong_one,
    27: adds_a_document_asks_about_it_and_opens_the_page,
    28: changes_the_model_while_one_loads_and_asks_at_once,
    29: sees_why_the_board_is_slow,
    30: changes_language_size_and_colours_and_allows_a_call_by_its_name,
    31: sends_a_question_when_the_board_is_back,
    32: downloads_a_model_and_removes_it,
    33: looks_for_a_server_and_follows_an_install_link,
    34: sets_the_size_of_text_and_a_text_about_themselves_and_deletes_everything,
    35: sees_how_a_phone_reaches_the_board,
}
# Those that a person does one after the other, with the page open, and the board that they do them on.
WALKS: Sequence[tuple[str, Sequence[int]]] = (
    ("usual", (2, 3, 6, 7)),
    ("slow", (4,)),
    ("usual", (5, 8, 20, 21)),
    ("usual", (10, 9, 11, 13)),
    ("hurried", (12,)),
    ("usual", (16, 17, 15)),
    ("usual", (18,)),
    ("usual", (22, 31, 24, 23)),
    ("usual", (29, 35)),
    ("usual", (30,)),
    ("equipped", (14, 27)),
    ("equipped", (25, 26, 33)),
    ("equipped", (28, 32)),
    ("locked", (1, 34)),
)


@contextmanager
def somebody(browser: Browser, address: str, way: str, ready: str = READY) -> Generator[Person]:
    """A person in front of the page, in the way that ``way`` says."""
    allowed = ["clipboard-read", "clipboard-write"]
    if way == "keyboard":
        with visiting(browser, address, DESKTOP, ready=ready, permissions=allowed) as visit:
            yield Keyboard(visit.page, "en")
    else:
        phone = {"has_touch": True, "is_mobile": True, "device_scale_factor": 2}
        with visiting(browser, address, PHONE, ready=ready, locale="ja-JP", permissions=allowed, **phone) as visit:
            yield Touch(visit.page, "ja")


@pytest.mark.parametrize("way", ["keyboard", "touch"])
@pytest.mark.parametrize(("board", "numbers"), WALKS, ids=str)
def test_a_person_does_tasks_of_the_tour(
    browser: Browser, boards: Boards, board: str, numbers: Sequence[int], way: str
) -> None:
    demo, address = boards.get(board)
    # A board that wants a key asks for it first.
    with somebody(browser, address, way, "dialog" if board in ("locked", "equipped") else READY) as person:
        for number in numbers:
            TASKS[number](person, demo)
            person.has_not_moved_sideways()
            for control, shown_by in (("#panel-close", "#panel"), ("[data-new]", "#thread > *")):
                if number != numbers[-1] and person.page.is_visible(shown_by):
                    person.use(person.page.locator(control).locator("visible=true").first)
                    person.page.wait_for_selector(shown_by, state="hidden")
