"""Pictures for tests, made by Pillow, and emulated vision encoders."""

from __future__ import annotations

import io
import struct
import zlib
from collections.abc import Sequence
from pathlib import Path

from PIL import Image

RED, GREEN, BLUE, WHITE = (220, 20, 20), (20, 170, 40), (20, 40, 220), (250, 250, 250)
Colour = tuple[int, int, int]


def stripes(
    colours: Sequence[Colour], size: tuple[int, int] = (120, 120), kind: str = "PNG", **options: object
) -> bytes:
    """A picture of horizontal stripes of these colours, from above."""
    width, height = size
    image = Image.new("RGB", size)
    for number, colour in enumerate(colours):
        top, bottom = number * height // len(colours), (number + 1) * height // len(colours)
        image.paste(colour, (0, top, width, bottom))
    return saved(image, kind, **options)


def saved(image: Image.Image, kind: str = "PNG", **options: object) -> bytes:
    """The bytes of a picture's file."""
    file = io.BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


RED_ABOVE_BLUE = stripes((RED, BLUE))
BLUE_ABOVE_RED = stripes((BLUE, RED))
GREEN_ABOVE_WHITE = stripes((GREEN, WHITE))


def bomb_png(width: int, height: int, *, bits: int = 8, colour: int = 2) -> bytes:
    """A PNG file of some kB for a picture of any size, whose lines are all zero; ``colour`` is the type of PNG."""
    line_bytes = (width * bits * {0: 1, 2: 3, 6: 4}[colour] + 7) // 8 + 1
    packer, packed, left = zlib.compressobj(9), bytearray(), line_bytes * height
    while left > 0:
        packed += packer.compress(bytes(min(left, 2**20)))
        left -= 2**20
    packed += packer.flush()

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = struct.pack(">IIBBBBB", width, height, bits, colour, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", bytes(packed)) + chunk(b"IEND", b"")


def emulated_encoder(folder: Path, *, width: int = 16, lines: str = "outputs 1") -> Path:
    """A model of the emulated librknnrt.so: 16 tokens, a picture of 64 x 64 pixels."""
    path = folder / "vision.rknn"
    path.write_text(f"RKNN-EMULATOR 1\ninput 64 64\ntokens 16\nwidth {width}\n{lines}\n", encoding="utf-8")
    return path
