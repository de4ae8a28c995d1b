"""Pictures to pixels: upright, undistorted, on grey; what is not a picture costs a sentence."""

from __future__ import annotations

import io
import random
import re
import struct
import subprocess
import sys
import tracemalloc
import zlib
from collections.abc import Callable

import pytest
from PIL import Image
from pillow_heif import register_heif_opener  # pyright: ignore[reportUnknownVariableType]

from rkllm_mcp.catalogue import read_catalogue
from rkllm_mcp.errors import InputRefusedError
from rkllm_mcp.runtime.vision.picture import fitted_pixels
from tests.support.japanese import is_told
from tests.support.pictures import BLUE, GREEN, RED, WHITE, saved, stripes

register_heif_opener()

GREY = (128, 128, 128)
_ORIENTATION = 0x0112


def seen(data: bytes, size: int = 64) -> dict[str, tuple[int, ...]]:
    """The colours above, below, left and right, at the middle of each edge's inner quarter."""
    image = Image.frombytes("RGB", (size, size), fitted_pixels(data, size, size))
    middle, near, far = size // 2, size // 8, size - size // 8 - 1
    places = {"above": (middle, near), "below": (middle, far), "left": (near, middle - 9), "right": (far, middle - 9)}
    return {name: image.getpixel(place) for name, place in places.items()}  # type: ignore[misc]


def exif(orientation: int) -> bytes:
    tags = Image.Exif()
    tags[_ORIENTATION] = orientation
    return tags.tobytes()


def turned_photo() -> bytes:
    """A phone's photo: red above blue, stored a quarter turn to the left, with the tag that turns it back."""
    upright = Image.open(io.BytesIO(stripes((RED, BLUE), (160, 160))))
    return saved(upright.rotate(90, expand=True), exif=exif(6))


def two_frames() -> bytes:
    first, second = (Image.open(io.BytesIO(stripes(colours))) for colours in ((RED, BLUE), (GREEN, WHITE)))
    return saved(first, "GIF", save_all=True, append_images=[second])


def translucent() -> bytes:
    image = Image.new("RGBA", (100, 100), (0, 0, 0, 0))
    image.paste((*RED, 255), (0, 0, 100, 50))
    return saved(image)


def translucent_grey() -> bytes:
    image = Image.new("LA", (100, 100), (0, 0))
    image.paste((128, 255), (0, 0, 100, 50))
    return saved(image)


def sixteen_bits() -> bytes:
    image = Image.new("I;16", (40, 40), 0)
    image.paste(0x8080, (0, 0, 40, 20))
    return saved(image)


@pytest.mark.parametrize(
    ("data", "above", "below"),
    [
        (stripes((RED, BLUE), kind="PNG"), RED, BLUE),
        (stripes((RED, BLUE), kind="JPEG", quality=95, subsampling=0), RED, BLUE),
        (stripes((RED, BLUE), kind="WEBP", lossless=True), RED, BLUE),
        (stripes((RED, BLUE), kind="BMP"), RED, BLUE),
        (stripes((RED, BLUE), kind="MPO"), RED, BLUE),
        (stripes((RED, BLUE), kind="AVIF", quality=100), RED, BLUE),
        (stripes((RED, BLUE), kind="HEIF", quality=-1), RED, BLUE),
        (stripes((RED, BLUE), kind="HEIF", quality=-1).replace(b"heic", b"msf1", 1), RED, BLUE),
        (lambda: stripes((RED, BLUE), (4000, 3000), kind="JPEG", quality=95), RED, BLUE),
        (stripes((RED, BLUE), (100, 1000)), RED, BLUE),
        (turned_photo(), RED, BLUE),
        (two_frames(), RED, BLUE),
        (translucent(), RED, (255, 255, 255)),
        (translucent_grey(), GREY, (255, 255, 255)),
        (sixteen_bits(), GREY, (0, 0, 0)),
        (saved(Image.new("CMYK", (30, 30), (0, 0, 0, 0)), "JPEG"), (255, 255, 255), (255, 255, 255)),
        (saved(Image.new("P", (30, 30), 0)), (0, 0, 0), (0, 0, 0)),
        (saved(Image.new("1", (30, 30), 1)), (255, 255, 255), (255, 255, 255)),
    ],
    ids=lambda value: None if isinstance(value, bytes) or callable(value) else str(value),
)
def test_a_picture_is_upright_in_its_colours(
    data: bytes | Callable[[], bytes], above: tuple[int, ...], below: tuple[int, ...]
) -> None:
    colours = seen(data() if callable(data) else data)
    for found, expected in ((colours["above"], above), (colours["below"], below)):
        assert all(abs(a - b) <= 6 for a, b in zip(found, expected, strict=True)), (found, expected)


@pytest.mark.parametrize("size", [(20_000, 1), (1, 20_000), (20_000, 2_000)], ids=str)
def test_a_picture_with_the_longest_sides_is_read(size: tuple[int, int]) -> None:
    image = Image.frombytes("RGB", (64, 64), fitted_pixels(saved(Image.new("L", size, 7)), 64, 64))
    assert (7, 7, 7) in {image.getpixel((x, y)) for x in range(64) for y in range(64)}


def test_a_wide_picture_is_centred_on_grey_and_not_distorted() -> None:
    pixels = fitted_pixels(stripes((RED, BLUE), (200, 100)), 64, 64)
    rows = [pixels[y * 64 * 3 + 96 : y * 64 * 3 + 99] for y in range(64)]
    assert [bytes(GREY) == row for row in rows] == [y < 16 or y >= 48 for y in range(64)]


def test_a_picture_keeps_the_details_that_an_encoder_of_another_shape_has_room_for() -> None:
    colours = (RED, BLUE) * 32
    pixels = fitted_pixels(stripes(colours, (64, 512)), 32, 256)
    rows = [tuple(pixels[y * 96 + 48 : y * 96 + 51]) for y in range(256)]
    assert rows[1::4] == list(colours)


def _cut_photo() -> bytes:
    """The first half of a photo of tiles, as phones write them; its library fills up what is missing."""
    image = Image.frombytes("RGB", (512, 512), random.Random(7).randbytes(512 * 512 * 3))
    whole = saved(image, "HEIF", tile_size=128)
    return whole[: len(whole) // 2]


def _png(width: int, height: int, content: bytes) -> bytes:
    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(content)) + chunk(b"IEND", b"")


def _bmp(width: int, height: int) -> bytes:
    head = struct.pack("<IiiHHIIiiII", 40, width, height, 1, 24, 0, 0, 0, 0, 0, 0)
    return b"BM" + struct.pack("<IHHI", 14 + len(head), 0, 0, 14 + len(head)) + head + bytes(1000)


@pytest.mark.parametrize(
    ("data", "part"),
    [
        (b"", "the picture is empty"),
        (b'<?xml version="1.0"?><svg xmlns="http://www.w3.org/2000/svg"/>', "SVG"),
        (b"  <svg onload='x'/>", "an SVG drawing, which is not read as a picture; send JPEG, PNG"),
        (b"\0\0\0\x18ftypheic\0\0\0\0", "the HEIC picture is damaged or incomplete (its end is missing)"),
        (b"\0\0\0\x18ftypavif\0\0\0\0", "the AVIF picture is damaged or incomplete (its end is missing)"),
        (b"\0\0\0\x0cftypavif\0\0\0\0", "the AVIF picture is damaged or incomplete; send it again"),
        (b"\0\0\0\x18ftypmp42\0\0\0\0", "a video"),
        (b"%PDF-1.7", "a PDF document"),
        (b"https://example.org/cat.png", "an address"),
        (b"no picture at all", "it is no picture"),
        (stripes((RED, BLUE), (400, 400), kind="JPEG")[:2000], "the JPEG picture is damaged or incomplete"),
        (_cut_photo, "the HEIC picture is damaged or incomplete (its end is missing)"),
        (stripes((RED, BLUE), (400, 400), kind="AVIF")[:-9], "the AVIF picture is damaged or incomplete (its end"),
        (stripes((RED, BLUE), (400, 400))[:300], "damaged or incomplete"),
        (_png(20_000, 10_000, bytes(1_000_000)), "megapixels; send a smaller one"),
        (_png(7_000, 7_000, bytes(1000)), "7000 x 7000 pixels, more than 40 megapixels"),
        (
            lambda: saved(Image.new("RGB", (4000, 3001)), "WEBP", quality=1, method=0),
            "x 3001 pixels, more than 12 megapixels, the most for WebP; send a smaller one, or save it as JPEG or PNG",
        ),
        (
            # Its width and height come before its pixels.
            lambda: saved(Image.new("RGB", (128, 128)), "HEIF").replace(
                struct.pack(">4sIII", b"ispe", 0, 128, 128), struct.pack(">4sIII", b"ispe", 0, 7296, 5472)
            ),
            "7296 x 5472 pixels, more than 20 megapixels, the most for HEIC; send a smaller one, or save it as JPEG",
        ),
        (saved(Image.new("RGB", (9, 9)), "TIFF"), "it is a TIFF picture, which is not read as a picture; send JPEG"),
        (lambda: _png(60_000, 60_000, bytes(10_000_000)), "megapixels; send a smaller one"),
        (lambda: _png(1, 39_000_000, bytes(39_000_000 * 4)), "1 x 39000000 pixels, and a side may have 20,000"),
        (_png(39_000_000, 1, bytes(1000)), "a side may have 20,000"),
        (_png(3_900_000, 10, bytes(1000)), "a side may have 20,000"),
        (_bmp(1, 39_000_000), "a side may have 20,000"),
        (_png(300, 300, bytes(3000)), "damaged or incomplete"),
    ],
    ids=lambda value: value[:30] if isinstance(value, str) else None,
)
def test_what_is_not_a_picture_costs_a_sentence_and_little_memory(data: bytes | Callable[[], bytes], part: str) -> None:
    data = data() if callable(data) else data
    tracemalloc.start()
    with pytest.raises(InputRefusedError) as refused:
        fitted_pixels(data, 448, 448)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert part in str(refused.value)
    # What the library says of a damaged file stays as it is, in brackets.
    assert is_told(re.sub("（.*）", "", read_catalogue("ja").phrase(str(refused.value))))
    assert peak < 100_000_000


def test_heic_names_the_part_that_reads_it_where_it_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    photo = stripes((RED, BLUE), kind="HEIF")
    monkeypatch.setitem(sys.modules, "pillow_heif", None)
    with pytest.raises(InputRefusedError, match=r"HEIC picture, which is read after: .*install heic"):
        fitted_pixels(photo, 448, 448)


_MEASURED = """
import sys
from rkllm_mcp.runtime.vision import picture

def peak():
    return int(next(line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM")))

data = sys.stdin.buffer.read()
before = peak()
try:
    picture.fitted_pixels(data, 448, 448)
except picture.InputRefusedError:
    pass
print((peak() - before) // 1024)
"""
_LARGE = (7990, 5000)


def _largest(mode: str, kind: str, size: tuple[int, int] = _LARGE, **options: object) -> bytes:
    return saved(Image.new(mode, size, 30), kind, **options)


@pytest.mark.parametrize(
    "make",
    [
        lambda: _largest("RGBA", "PNG", compress_level=1),
        lambda: _largest("P", "PNG", transparency=30),
        lambda: _largest("I;16", "PNG", compress_level=1),
        lambda: _largest("P", "GIF"),
        lambda: _largest("RGB", "JPEG", progressive=True)[:-2000],
        lambda: _largest("RGB", "WEBP", (4000, 3000), lossless=True, method=0, quality=0),
        lambda: _largest("RGB", "AVIF", (4000, 3990), speed=10),
        lambda: _largest("RGB", "HEIF", (5000, 3990), quality=30),
        lambda: _png(20_000, 10_000, bytes(1_000_000)),
    ],
    ids=["RGBA", "palette", "16 bits", "GIF", "cut JPEG", "WebP", "AVIF", "HEIC", "200 megapixels"],
)
def test_the_largest_pictures_take_less_than_200_megabytes(make: Callable[[], bytes]) -> None:
    # Pillow's own memory is not Python's; the test's process has had more before.
    run = subprocess.run([sys.executable, "-c", _MEASURED], input=make(), capture_output=True, check=True, timeout=60)
    assert int(run.stdout) < 200
