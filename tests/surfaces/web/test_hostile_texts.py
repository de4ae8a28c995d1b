"""Texts that reach the page of a real service, and addresses that lead to it: nothing of them runs or asks anyone."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import httpx2

from tests.support.browser import visiting
from tests.support.pictures import RED_ABOVE_BLUE, bomb_png
from tests.support.served import Served, scripted_model, served

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

# Each would run a script, or ask an address that is not one of the board's, where a page takes Markdown at its word.
MARKDOWN = (
    "[js](javascript:hurt=1) and [JS]( JaVaScRiPt:hurt=2 ) and <javascript:hurt=3>",
    "[data](data:text/html,<script>hurt=4</script>) [vb](vbscript:hurt) [file](file:///etc/passwd)",
    "![picture](https://outside.example/pixel.png) ![x](x onerror=hurt=5)",
    "[ref] and ![ref]",
    "[ref]: javascript:hurt=6",
    "<img src=x onerror=hurt=7><svg/onload=hurt=8><iframe srcdoc='<script>hurt=9</script>'></iframe>",
    "<a href='javascript:hurt=10'>a</a><style>@import url(https://outside.example/a.css)</style>",
    "| <b onmouseover=hurt=11>t</b> | [x](javascript&#58;hurt=12) |\\n|---|---|\\n| a | b |",
    r"$\\href{javascript:hurt=13}{x}$ $\\includegraphics{https://outside.example/a.png}$ $\\htmlData{a=hurt}{x}$",
    "```html\\n<script>hurt=14</script>\\n```",
    "[out](https://outside.example/?leak=1 'onclick=hurt')",
)
TURNED = "invoice\u202efdp.exe\u2066\x1b[2J"
ADDRESSES = (
    "#/c/" + quote("<img src=x onerror=hurt=16>"),
    "#/c/%E0%A4%A",
    "#/c/../../v1/me/data",
    "#add-server=" + quote("javascript:hurt=17"),
    "#add-server=" + quote('https://outside.example/mcp"><script>hurt=18</script>') + "&name=%3Cimg%20src%3Dx%3E",
    "#/link/not-a-code",
    "#__proto__",
)
FOUND = """() => ({
    hurt: typeof globalThis.hurt,
    bad: [...document.querySelectorAll([
        "iframe, object, embed, base, img:not([src^='blob:'])",
        ...["javascript", "data", "vbscript", "file"].map((scheme) => `[href^='${scheme}:' i]`),
    ].join(","))].map((node) => node.outerHTML),
    handlers: [...document.querySelectorAll("*")].flatMap((node) => node.getAttributeNames())
        .filter((name) => /^(on|srcdoc)/i.test(name)),
    turned: /[\\u202a-\\u202e\\u2066-\\u2069\\u001b]/.test(document.body.innerText + document.title),
})"""
HARMLESS: dict[str, Any] = {"hurt": "undefined", "bad": [], "handlers": [], "turned": False}
# What a mistake in the page would do; trusted types refuse it.
INJECTIONS = {
    "innerHTML": "() => { document.createElement('p').innerHTML = '<b>x</b>'; }",
    "insertAdjacentHTML": "() => { document.body.insertAdjacentHTML('beforeend', '<b>x</b>'); }",
    "DOMParser": "() => { new DOMParser().parseFromString('<b>x</b>', 'text/html'); }",
    "script": "() => { document.createElement('script').src = 'https://outside.example/a.js'; }",
    "policy": "() => { trustedTypes.createPolicy('another', { createHTML: (text) => text }); }",
}


def check(page: Page, place: str) -> None:
    assert page.evaluate(FOUND) == HARMLESS, place


def named(service: Served, title: str) -> None:
    """Give the latest conversation a title."""
    latest = httpx2.get(f"{service.url}/v1/conversations").json()["conversations"][0]["id"]
    httpx2.patch(f"{service.url}/v1/conversations/{latest}", json={"title": title}).raise_for_status()


def test_nothing_that_a_model_says_or_an_address_names_runs_or_asks_another_address(
    browser: Browser, tmp_path: Path
) -> None:
    rules = "".join(f"rule\n  user hurt{number}x\n  say {line}\n\n" for number, line in enumerate(MARKDOWN))
    with served(tmp_path, scripted_model(tmp_path / "model", rules)) as service:
        with visiting(browser, service.url) as visit:
            for number in range(len(MARKDOWN)):
                visit.ask(f"hurt{number}x {TURNED} <img src=x onerror=hurt=19>")
                visit.page.wait_for_selector("#stop", state="hidden")
                check(visit.page, MARKDOWN[number])
            links = visit.page.eval_on_selector_all(
                "main a[href^=http]", "(links) => links.map((link) => [link.href, link.rel])"
            )
            assert {rel for _, rel in links} == {"noopener noreferrer nofollow"}
            assert "https://outside.example/?leak=1" in [address for address, _ in links]
            said = httpx2.get(f"{service.url}/v1/conversations").json()["conversations"][0]
            assert not any(character in said["title"] for character in "\u202e\u2066\x1b")
            named(service, f"{TURNED}<img src=x onerror=hurt=20>")
            visit.page.reload()
            visit.page.wait_for_selector("text=invoicefdp.exe")
            check(visit.page, "title")
            refused = {name: _is_refused(visit.page, script) for name, script in INJECTIONS.items()}
            assert refused == dict.fromkeys(INJECTIONS, True)
            # What the browser said of them, and nothing else.
            visit.errors[:] = [error for error in visit.errors if "rusted" not in error and "policy" not in error]
            asked = [address for address in visit.addresses if not address.startswith(service.url)]
        assert [address for address in asked if not address.startswith("blob:")] == []
        for address in ADDRESSES:
            with visiting(browser, f"{service.url}/{address}") as visit:
                visit.page.wait_for_load_state("networkidle")
                check(visit.page, address)
                visit.errors.clear()
                assert [each for each in visit.addresses if not each.startswith(service.url)] == [], address
        servers = httpx2.get(f"{service.url}/v1/servers").json()["servers"]
    assert json.dumps(servers).count("outside.example") == 0


def test_a_picture_of_a_few_kilobytes_and_millions_of_lines_is_not_decoded_by_the_page(
    browser: Browser, tmp_path: Path
) -> None:
    """Another key of the owner may have stored it; the owner opens the conversation."""
    pictures = [bomb_png(1, 39_000_000), bomb_png(39_000_000, 1, bits=1, colour=0), RED_ABOVE_BLUE]
    with served(tmp_path, scripted_model(tmp_path / "model", "rule\n  say Hello.\n")) as service:
        encoded = [base64.b64encode(picture).decode() for picture in pictures]
        body = {"message": "what is it?", "pictures": encoded, "stream": False}
        asked = httpx2.post(f"{service.url}/v1/execute", json=body, timeout=60).raise_for_status().json()
        with visiting(browser, f"{service.url}/#/c/{asked['conversation']}") as visit:
            visit.page.wait_for_function("document.querySelectorAll('.thumbnail-image.missing').length === 2")
            visit.page.wait_for_selector(".thumbnail-image[src^=blob]")
            assert visit.page.locator(".thumbnail-image[src]").count() == 1


def test_a_photo_that_the_browser_does_not_decode_has_no_sign_of_a_broken_page(
    browser: Browser, tmp_path: Path
) -> None:
    photo = b"\0\0\0\x18ftypheic" + bytes(30) + b"ispe" + bytes(4) + b"\0\0\1\0\0\0\1\0" + bytes(30)
    with served(tmp_path, scripted_model(tmp_path / "model", "rule\n  say Hello.\n")) as service:
        body = {"message": "what is it?", "pictures": [base64.b64encode(photo).decode()], "stream": False}
        asked = httpx2.post(f"{service.url}/v1/execute", json=body, timeout=60).raise_for_status().json()
        with visiting(browser, f"{service.url}/#/c/{asked['conversation']}") as visit:
            visit.page.wait_for_selector("span.thumbnail-image.missing")


def _is_refused(page: Page, script: str) -> bool:
    return page.evaluate(f"() => {{ try {{ ({script})(); }} catch (error) {{ return error instanceof TypeError; }} }}")
