"""A board whose model sees, and what a person does with pictures on its page."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from tests.support.browser import Visit
from tests.support.demo_app import Demo, make_demo
from tests.support.seeing_model import seeing_model, without_eyes

if TYPE_CHECKING:
    from playwright.sync_api import FilePayload

IMAGE = ".thumbnail-image"
CHIP = f"#files {IMAGE}[src^='blob:']"
# Puts a file into the page as a drop or a paste does; the system's clipboard has one format for pictures, PNG.
_GIVE = """async ([kind, name, type, bytes]) => {
  const transfer = new DataTransfer();
  transfer.items.add(new File([new Uint8Array(bytes)], name, { type }));
  const place = document.querySelector("#question");
  if (kind === "paste") place.dispatchEvent(new ClipboardEvent(kind, { clipboardData: transfer, bubbles: true }));
  else for (const each of ["dragover", "drop"])
    place.dispatchEvent(new DragEvent(each, { dataTransfer: transfer, bubbles: true, cancelable: true }));
}"""


def file(name: str, data: bytes, kind: str = "image/png") -> FilePayload:
    """A file as a file chooser of the page takes it."""
    return {"name": name, "mimeType": kind, "buffer": data}


def give(visit: Visit, kind: str, name: str, data: bytes, type: str = "image/png") -> None:  # noqa: A002
    """Paste or drop a file into the page."""
    visit.page.evaluate(_GIVE, [kind, name, type, list(data)])


def seeing_board(folder: Path, version: str = "1.3.0", *, outputs: int = 1, faults: str = "") -> Demo:
    """A board whose model sees, and one next to it that does not."""
    models = folder / "models"
    model = seeing_model(models, outputs=outputs, faults=faults)
    without_eyes(models / "other").rename(models / "blind")
    demo = make_demo(folder / "home", (), path=model, speed="")
    own = {"RKLLM_MCP_MODELS": str(models), "RKLLM_EMULATOR_ABI": version}
    return replace(demo, environment={**demo.environment, **own})
