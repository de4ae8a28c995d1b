"""Requests that name another installed model: it is loaded in their turn, and goes again when it is not used."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Generator
from functools import partial
from pathlib import Path
from typing import Any

import httpx2
import pytest

from rkllm_mcp.surfaces.http import model_catalogue
from tests.support.demo_model import DEMO_TOKENIZER
from tests.support.fake_hub import FakeHub, running
from tests.support.rkllm_files import container
from tests.support.served import Served, scripted_model, served
from tests.surfaces.cli.test_models import FACTS, FILE

Json = dict[str, Any]
TENANT = "tenant-key-of-24-letters"
OWNER = "owner-key-of-24-letters-"
KEYS = f'[service]\napi_keys = ["{OWNER}"]\n[[tenants]]\nname = "guest"\napi_key = "{TENANT}"\nmay_approve = false\n'
WITHIN_S = 60.0


def models_folder(home: Path) -> Path:
    """Two models, one that cannot be loaded, and one that is larger than any memory."""
    folder = home / ".local" / "share" / "rkllm-mcp" / "models"
    for name in ("parrot", "owl", "whale"):
        scripted_model(folder / name, f"rule\n  say I am the {name}.\n", name=name)
    scripted_model(folder / "broken", "rule\n  nonsense\n", name="broken")
    os.truncate(folder / "whale" / "model.rkllm", 2**41)
    return folder


@pytest.fixture
def service(tmp_path: Path) -> Generator[Served, None, None]:
    with served(tmp_path, models_folder(tmp_path) / "parrot") as it:
        yield it


@pytest.fixture(scope="module")
def settled(tmp_path_factory: pytest.TempPathFactory) -> Generator[Served, None, None]:
    """A service whose model stays."""
    folder = tmp_path_factory.mktemp("settled")
    with served(folder, models_folder(folder) / "parrot") as it:
        yield it


def ask(service: Served, model: str = "", key: str = OWNER, **body: Any) -> tuple[int, Json]:
    """Ask for an answer of a model; return the status and the body."""
    answer = httpx2.post(
        f"{service.url}/v1/chat/completions",
        json={"messages": [{"role": "user", "content": "Who?"}], **({"model": model} if model else {}), **body},
        headers={"Authorization": f"Bearer {key}"},
        timeout=WITHIN_S,
    )
    return answer.status_code, answer.json()


def said(answer: tuple[int, Json]) -> str:
    assert answer[0] == 200, answer
    return answer[1]["choices"][0]["message"]["content"]


def loaded(service: Served, key: str = OWNER) -> list[str]:
    headers = {"Authorization": f"Bearer {key}"}
    models = httpx2.get(f"{service.url}/v1/models", headers=headers, timeout=WITHIN_S).json()["data"]
    return [model["id"] for model in models if model["loaded"]]


def test_a_request_loads_the_model_that_it_names_and_one_that_names_none_takes_the_loaded(service: Served) -> None:
    listed = httpx2.get(f"{service.url}/v1/models", timeout=WITHIN_S).json()["data"]
    assert [(model["id"], model["loaded"]) for model in listed] == [
        ("parrot", True),
        ("broken", False),
        ("owl", False),
        ("whale", False),
    ]
    assert listed[0]["capabilities"] == ["chat", "tools", "embed"]
    told: list[Json] = []
    asked = {"message": "Who?", "model": "owl"}
    with httpx2.stream("POST", f"{service.url}/v1/execute", json=asked, timeout=WITHIN_S) as answer:
        told += [json.loads(line[6:]) for line in answer.iter_lines() if line.startswith("data: ")]
    assert (told[0]["kind"], told[0]["text"]) == ("status", "[NPU: Loading model 'owl']")
    assert "".join(event["text"] for event in told if event["kind"] == "text") == "I am the owl."
    assert (said(ask(service)), loaded(service)) == ("I am the owl.", ["owl"])
    first = service.log.read_text("utf-8").count("rkllm_load_prompt_cache")
    # What every prompt begins with was kept when the owl was loaded, and is loaded from disk when it comes back.
    assert [said(ask(service, name)) for name in ("parrot", "owl")] == ["I am the parrot.", "I am the owl."]
    while service.log.read_text("utf-8").count("rkllm_load_prompt_cache") == first:
        time.sleep(0.01)


def test_an_installed_model_that_embeds_is_listed_as_one_and_does_not_chat(settled: Served) -> None:
    folder = models_folder(settled.log.parent)
    scripted_model(folder / "mapper", "rule", name="mapper")
    with (folder / "mapper" / "model.toml").open("a", encoding="utf-8") as card:
        card.write('task = "embed"\n')
    listed = httpx2.get(f"{settled.url}/v1/models", timeout=WITHIN_S).json()["data"]
    assert next(model for model in listed if model["id"] == "mapper")["capabilities"] == ["embed"]
    status, answer = ask(settled, "mapper")
    assert (status, answer["error"]["message"]) == (404, "'mapper' does not chat; ask for 'parrot'")


def test_when_the_new_one_cannot_be_loaded_the_old_one_is_back_and_the_error_says_so(service: Served) -> None:
    status, answer = ask(service, "broken")
    assert status == 503
    assert answer["error"]["message"].startswith("The model 'broken' could not be loaded: The runtime did not load")
    assert "'parrot' is loaded again." in answer["error"]["message"]
    assert said(ask(service)) == "I am the parrot."
    before = service.service and service.service.model_host.board.engine.worker_pid
    status, answer = ask(service, "whale")
    assert status == 503
    assert "would be available without 'parrot', which stays loaded" in answer["error"]["message"]
    assert service.service is not None
    assert service.service.model_host.board.engine.worker_pid == before
    assert ask(service, "nobody")[0] == 404


def test_a_tenant_has_no_model_loaded_neither_sees_the_catalogue_nor_changes_it(tmp_path: Path) -> None:
    with served(tmp_path, models_folder(tmp_path) / "parrot", extra=KEYS) as service:
        assert said(ask(service, "parrot", TENANT)) == "I am the parrot."
        status, answer = ask(service, "owl", TENANT)
        assert (status, answer["error"]["code"]) == (403, "model_switching")
        assert said(ask(service, "owl")) == "I am the owl."
        assert loaded(service, TENANT) == ["owl"]
        # What it names has to be there: it would unload the owner's otherwise.
        assert ask(service, "parrot", TENANT)[0] == 403
        for method, path in (
            ("POST", "/api/pull"),
            ("DELETE", "/api/delete"),
            ("GET", "/v1/models/catalogue"),
            ("GET", "/v1/models/downloads"),
            ("GET", "/v1/models/hub?search=a"),
            ("POST", "/v1/models:pull"),
            ("POST", "/v1/models:stop"),
            ("DELETE", "/v1/models/owl"),
        ):
            headers = {"Authorization": f"Bearer {TENANT}"}
            body = {"model": "owl"} if method == "POST" or path.startswith("/api/") else None
            assert httpx2.request(method, f"{service.url}{path}", json=body, headers=headers).status_code == 403, path


@pytest.mark.parametrize(("switching", "status"), [("request", 200), ("off", 404)])
def test_the_owner_decides_who_may_exchange_models(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, switching: str, status: int
) -> None:
    monkeypatch.setenv("RKLLM_MCP_MODEL__SWITCHING", switching)
    with served(tmp_path, models_folder(tmp_path) / "parrot", extra=KEYS) as service:
        assert ask(service, "owl", TENANT)[0] == status


def ps(service: Served) -> list[str]:
    return [model["name"] for model in httpx2.get(f"{service.url}/api/ps", timeout=WITHIN_S).json()["models"]]


def test_keep_alive_unloads_an_idle_model_and_the_next_question_loads_it_again(service: Served) -> None:
    chat = {"model": "owl", "messages": [{"role": "user", "content": "Who?"}], "stream": False}
    answer = httpx2.post(f"{service.url}/api/chat", json={**chat, "keep_alive": "10ms"}, timeout=WITHIN_S).json()
    assert answer["message"]["content"] == "I am the owl."
    while ps(service):
        time.sleep(0.01)
    assert httpx2.get(f"{service.url}/readyz", timeout=WITHIN_S).status_code == 200
    assert (said(ask(service)), ps(service)) == ("I am the parrot.", ["parrot:latest"])
    # As Open WebUI does it.
    unload = {"model": "parrot:latest", "keep_alive": 0, "prompt": ""}
    unloaded = httpx2.post(f"{service.url}/api/generate", json=unload, timeout=WITHIN_S).json()
    assert (unloaded["done"], unloaded["done_reason"]) == (True, "unload")
    while ps(service):
        time.sleep(0.01)
    refused = httpx2.post(f"{service.url}/api/chat", json={**chat, "keep_alive": "soon"}, timeout=WITHIN_S)
    assert refused.status_code == 400
    assert "'soon' is no duration" in refused.json()["error"]
    asked = httpx2.post(f"{service.url}/v1/models:load", json={"model": "owl", "keep_alive": -1}, timeout=WITHIN_S)
    assert (asked.json()["id"], asked.json()["loaded"]) == ("owl", True)


def test_the_owner_removes_unused_models_and_nothing_outside(service: Served, tmp_path: Path) -> None:
    def delete(name: str) -> int:
        return httpx2.request("DELETE", f"{service.url}/api/delete", json={"model": name}, timeout=WITHIN_S).status_code

    assert said(ask(service, "owl")) == "I am the owl."
    assert [delete(name) for name in ("owl", "parrot", "demo", "../parrot", "nobody")] == [409, 409, 403, 404, 404]
    assert said(ask(service, "parrot")) == "I am the parrot."
    folder = tmp_path / ".local" / "share" / "rkllm-mcp" / "models"
    assert (delete("owl:latest"), sorted(path.name for path in folder.iterdir())) == (
        200,
        ["broken", "parrot", "whale"],
    )
    assert ask(service, "owl")[0] == 404


def test_a_model_is_pulled_with_its_progress(settled: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    weights = container(FACTS, weights=bytes(range(256)) * 100)
    files = {"them/qwen2.5-1.5b": {FILE: weights, "tokenizer.json": DEMO_TOKENIZER.read_bytes()}}
    with running(FakeHub(files)) as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.url)
        monkeypatch.setenv("NO_PROXY", "127.0.0.1,localhost")
        asked = {"model": f"hf.co/them/qwen2.5-1.5b:{FILE}"}
        with httpx2.stream("POST", f"{settled.url}/api/pull", json=asked, timeout=WITHIN_S) as answer:
            told = [json.loads(line) for line in answer.iter_lines()]
    assert told[0] == {"status": "pulling manifest"}
    assert {"status": f"pulling {FILE}", "digest": FILE, "total": len(weights), "completed": len(weights)} in told
    assert told[-1] == {"status": "success"}
    missing = httpx2.post(f"{settled.url}/api/pull", json={"model": "nobody", "stream": False}, timeout=WITHIN_S)
    assert missing.status_code == 404


def catalogue(service: Served, language: str = "en") -> Json:
    headers = {"Accept-Language": language}
    return httpx2.get(f"{service.url}/v1/models/catalogue", headers=headers, timeout=WITHIN_S).json()


def download_of(service: Served, *states: str) -> Json:
    """Wait until the only download has one of these states."""
    for _ in range(int(WITHIN_S * 50)):
        (download,) = httpx2.get(f"{service.url}/v1/models/downloads", timeout=WITHIN_S).json()["downloads"]
        if download["state"] in states:
            return download
        time.sleep(0.02)
    raise AssertionError(f"the download is never {states}")


def test_a_download_goes_on_without_its_client_and_is_stopped_continued_used_and_removed(
    service: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    weights = container(FACTS, weights=bytes(range(256)) * 4000)
    files = {
        "Azurastar2903/Qwen2.5-1.5B-Instruct-rk3588-1.2.1": {FILE: weights},
        "Qwen/Qwen2.5-1.5B-Instruct": {"tokenizer.json": DEMO_TOKENIZER.read_bytes()},
    }
    name, part = "qwen2.5-1.5b", 300_000
    with running(FakeHub(files, stall_bytes=part)) as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.url)
        monkeypatch.setenv("NO_PROXY", "127.0.0.1,localhost")
        post = partial(httpx2.post, timeout=WITHIN_S)
        begun = post(f"{service.url}/v1/models:pull", json={"model": name})
        assert (begun.status_code, begun.json()["name"]) == (202, name)
        assert hub.stalled.wait(WITHIN_S)
        assert post(f"{service.url}/v1/models:pull", json={"model": name}).status_code == 409
        download = download_of(service, "running")
        while not download["received"]:
            download = download_of(service, "running")
        assert download["total"] == len(weights)
        list_models = model_catalogue.known_models

        def stopped_meanwhile(*arguments: Any) -> Any:
            known = list_models(*arguments)
            assert post(f"{service.url}/v1/models:stop", json={"model": name}).status_code == 204
            hub.stall_bytes = 0
            hub.gone.set()
            assert download_of(service, "stopped")["problem"] == ""
            return known

        with monkeypatch.context() as patch:
            patch.setattr(model_catalogue, "known_models", stopped_meanwhile)
            # A reader of the list before it asks again about what was under way.
            assert [download["state"] for download in catalogue(service)["downloads"]] == ["running"]
        (known,) = [model for model in catalogue(service)["models"] if model["name"] == name]
        assert (known["state"], known["partial_bytes"] > 0, known["removable"]) == ("to pull", True, False)
        # What has arrived is not fetched again.
        hub.requests.clear()
        assert post(f"{service.url}/v1/models:pull", json={"model": name}).status_code == 202
        done = download_of(service, "ready", "failed")
        assert (done["state"], done["problem"], done["folder"]) == ("ready", "", name)
        assert [wanted for wanted in hub.bodies() if wanted.startswith("bytes=") and wanted != "bytes=0-"]
    (known,) = [model for model in catalogue(service)["models"] if model["name"] == name]
    assert (known["state"], known["partial_bytes"], known["removable"], known["loaded"]) == ("here", 0, True, False)
    removed = httpx2.delete(f"{service.url}/v1/models/{name}", timeout=WITHIN_S)
    assert removed.json() == {"id": name, "object": "model", "deleted": True}
    assert httpx2.delete(f"{service.url}/v1/models/{name}", timeout=WITHIN_S).status_code == 403
    assert httpx2.delete(f"{service.url}/v1/models/parrot", timeout=WITHIN_S).status_code == 409
    assert httpx2.delete(f"{service.url}/v1/models/nobody", timeout=WITHIN_S).status_code == 404


def test_a_download_that_fails_says_why_and_the_hub_is_searched_by_name(
    service: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    with running(FakeHub({"them/qwen2.5-1.5b-rkllm": {FILE: b"<html>" * 900}, "them/qwen2.5-empty": {}})) as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.url)
        monkeypatch.setenv("NO_PROXY", "127.0.0.1,localhost")
        found = httpx2.get(f"{service.url}/v1/models/hub", params={"search": "Qwen2.5-1.5B"}, timeout=WITHIN_S).json()
        assert found == {"hub": hub.url, "repositories": ["them/qwen2.5-1.5b-rkllm"]}
        httpx2.post(f"{service.url}/v1/models:pull", json={"model": "them/qwen2.5-empty:a.rkllm"}, timeout=WITHIN_S)
        assert "has no file 'a.rkllm'" in download_of(service, "failed")["problem"]
        gone = httpx2.post(
            f"{service.url}/v1/models:stop", json={"model": "them/qwen2.5-empty:a.rkllm"}, timeout=WITHIN_S
        )
        assert gone.status_code == 204
        assert catalogue(service)["downloads"] == []
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    described = {
        language: [each["description"] for each in catalogue(service, language)["models"] if each["name"] == "qwen3-4b"]
        for language in ("ja, en;q=0.5", "fr")
    }
    assert list(described.values()) == [
        ["Qwen3 4B。ツールが得意ですが、低速です"],
        ["Qwen3 4B: strong with tools, and slow"],
    ]
    unreachable = httpx2.get(f"{service.url}/v1/models/hub", params={"search": "Qwen"}, timeout=WITHIN_S)
    assert (unreachable.status_code, "cannot be reached" in unreachable.text) == (503, True)
