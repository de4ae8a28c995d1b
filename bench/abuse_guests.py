"""Attacks with pictures, with connections, and by what is outside: boards and specifications of APIs."""

from __future__ import annotations

import base64
import random
import socket
import struct
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import lru_cache
from pathlib import Path
from typing import Any

import anyio
import httpx2
from PIL import Image

from bench.abuse_frame import Attack, Scene
from bench.load_service import KEYS
from tests.support.outside import BODIES, WITHOUT_END, HostileServer, hostile_server
from tests.support.pictures import bomb_png, saved

# Headers of a proxy before several boards.
_THROUGH_PROXY = {"X-Board": "near"}
_REQUESTS = 12
_CONNECTIONS, _AT_ONCE = 10_000, 400


# --- pictures --------------------------------------------------------------------------------------------------------


@lru_cache
def _bombs() -> Sequence[bytes]:
    """Pictures of a few kB whose pixels or lines would take gigabytes."""
    return (
        bomb_png(1, 39_000_000),
        bomb_png(39_000_000, 1, bits=1, colour=0),
        bomb_png(3_900_000, 10, bits=16, colour=6),
        bomb_png(20_000, 20_000, bits=1, colour=0),
    )


@lru_cache
def _large() -> Sequence[bytes]:
    """The largest pictures that are read, of each format."""
    line = Image.new("RGB", (20_000, 1999), (9, 99, 199))
    return (
        bomb_png(20_000, 2_000, bits=16, colour=6),
        saved(line, "JPEG", progressive=True, quality=30),
        saved(Image.new("P", (8000, 5000)), "GIF"),
        saved(Image.new("RGB", (4000, 3000)), "WEBP", quality=1, method=0),
    )


def _damaged(dice: random.Random) -> Iterator[bytes]:
    """Yield pictures of each format with bytes that are cut, changed, or have an EXIF part without sense."""
    image = Image.effect_noise((300, 200), 60).convert("RGB")
    for kind in ("PNG", "JPEG", "WEBP", "GIF", "BMP"):
        whole = saved(image, kind)
        yield whole[: dice.randrange(20, len(whole))]
        changed = bytearray(whole)
        for _ in range(20):
            changed[dice.randrange(12, len(changed))] = dice.randrange(256)
        yield bytes(changed)
    # A directory whose entries point at themselves and count four thousand million values.
    entry = struct.pack("<HHII", 0x0112, 5, 0xFFFFFFFF, 8)
    exif = b"Exif\0\0II*\0" + struct.pack("<IH", 8, 5000) + entry * 5000 + struct.pack("<I", 8)
    yield saved(image, "JPEG", exif=exif)
    yield saved(image, "PNG", exif=exif)


def _bodies(pictures: Sequence[bytes]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield a question with pictures for each API that takes them."""
    texts = [base64.b64encode(picture).decode() for picture in pictures]
    urls = [f"data:image/png;base64,{text}" for text in texts]
    asked = {"type": "text", "text": "what is it?"}
    parts = [{"type": "image_url", "image_url": {"url": url}} for url in urls]
    yield "/v1/execute", {"message": "what is it?", "pictures": texts, "stream": False}
    yield "/v1/chat/completions", {"messages": [{"role": "user", "content": [*parts, asked]}]}
    blocks = [
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": text}} for text in texts
    ]
    message = {"role": "user", "content": [*blocks, asked]}
    yield "/v1/messages", {"model": "loaded", "max_tokens": 20, "messages": [message]}
    turn = {"role": "user", "content": "what is it?", "images": texts}
    yield "/api/chat", {"model": "loaded", "messages": [turn], "stream": False}


async def _ask(scene: Scene, questions: Sequence[Sequence[bytes]], within_s: float) -> None:
    """Ask questions with pictures at once, through one API after the other."""
    statuses: list[int] = []
    asked = [list(_bodies(pictures))[number % 4] for number, pictures in enumerate(questions)]
    async with scene.client() as client:

        async def ask(number: int) -> None:
            path, body = asked[number]
            with suppress(httpx2.HTTPError):
                statuses.append((await client.post(path, json=body)).status_code)

        await scene.storm(len(asked), ask, within_s)
    if any(status >= 500 and status != 503 for status in statuses):
        scene.find(f"pictures are answered with {sorted(statuses)}")


async def pictures_of_long_sides(scene: Scene) -> None:
    """Send pictures of some kB with lines or columns of millions of pixels."""
    await _ask(scene, [[bomb] for bomb in _bombs()], 30.0)


async def largest_pictures(scene: Scene) -> None:
    """Send the largest pictures of each format, several in a question."""
    await _ask(scene, [*([picture] for picture in _large()), _large()], 30.0)


async def many_pictures(scene: Scene) -> None:
    """Send a hundred pictures in one question, all different."""
    pictures = [saved(Image.new("RGB", (3, 2), (number, 0, 0))) for number in range(100)]
    await _ask(scene, [pictures] * 4, 15.0)


async def damaged_pictures(scene: Scene) -> None:
    """Send cut and changed pictures of each format, and EXIF parts without sense."""
    await _ask(scene, [[picture] for picture in _damaged(random.Random(7))], 20.0)


# --- connections -----------------------------------------------------------------------------------------------------


async def ten_thousand_connections(scene: Scene) -> None:
    """Open ten thousand connections from many addresses, some hundred at once, with half a head each."""
    url = httpx2.URL(scene.service.url)

    async def hold(number: int) -> None:
        for turn in range(_CONNECTIONS // _AT_ONCE):
            with suppress(OSError, anyio.BrokenResourceError, anyio.EndOfStream, TimeoutError):
                source = f"127.{1 + number % 50}.{turn + 1}.9"
                with anyio.fail_after(5):
                    raw = await anyio.connect_tcp(url.host, url.port or 80, local_host=source)
                    async with raw:
                        await raw.send(b"GET /v1/models HT")
                        with anyio.move_on_after(0.05):
                            await raw.receive()

    await scene.storm(_AT_ONCE, hold, 45.0)


# --- boards ----------------------------------------------------------------------------------------------------------


_boards: dict[str, HostileServer] = {}


def _closed_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


@contextmanager
def board_world(folder: Path) -> Generator[str, None, None]:
    """A service with two other boards: one that a hostile program answers for, and one that is gone."""
    del folder
    with hostile_server() as server:
        _boards["odd"] = server
        addresses = {"near": f"127.0.0.1:{_closed_port()}", "odd": server.url.removeprefix("http://")}
        yield "".join(f'[[boards]]\nname = "{name}"\naddress = "{at}"\n' for name, at in addresses.items())


async def _list_boards(scene: Scene, way: str) -> None:
    board = _boards["odd"]
    board.way, board.sent = way, 0
    async with scene.client(KEYS[0]) as client:

        async def ask(number: int) -> None:
            path = ("/v1/models", "/api/tags", "/v1/boards")[number % 3]
            response = await client.get(path, headers=_THROUGH_PROXY)
            if response.status_code != 200:
                scene.find(f"{path} is {response.status_code} where a board answers {way}")

        await scene.storm(_REQUESTS, ask)
    board.way = "a list"


async def boards_without_end(scene: Scene) -> None:
    """Have the lists of all boards asked for while one answers without end, in a drip, or with a terabyte."""
    for way in WITHOUT_END:
        await _list_boards(scene, way)


async def odd_boards(scene: Scene) -> None:
    """Have the lists asked for while a board answers with deep, long and wrong JSON, and compressed."""
    for way in (*BODIES, "compressed"):
        await _list_boards(scene, way)


GUESTS: Sequence[Attack] = (
    Attack("pictures of long sides", pictures_of_long_sides, host_mb=60, all_mb=400),
    Attack("the largest pictures", largest_pictures, host_mb=120, all_mb=600),
    Attack("a hundred pictures in a question", many_pictures, host_mb=60, all_mb=400),
    Attack("damaged pictures and EXIF", damaged_pictures, host_mb=60, all_mb=400),
    Attack("ten thousand connections", ten_thousand_connections, host_mb=60, all_mb=60),
    Attack("boards that answer without end", boards_without_end, board_world, host_mb=100, all_mb=100),
    Attack("boards that answer oddly", odd_boards, board_world, host_mb=100, all_mb=100),
)
