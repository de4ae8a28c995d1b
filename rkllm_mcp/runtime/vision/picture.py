"""Pictures of people and programs to the pixels that a vision encoder takes.

``encoder.read_picture`` runs this module in its own process, one a picture: a decoder may crash, hang or take
memory. The process reads the picture on its standard input and writes a byte, 1 for pixels and 0 for a refusal, and the
pixels or the sentence.
"""

from __future__ import annotations

import io
import os
import resource
import signal
import sys
from contextlib import suppress
from pathlib import Path

from PIL import Image, ImageOps

from rkllm_base.installation import install_command
from rkllm_mcp.errors import InputRefusedError
from rkllm_mcp.messages import PICTURE_FORMATS, UNREAD_PICTURES, picture_type

# Checked before decoding: a pixel takes 4 bytes in most formats, 10 in AVIF and HEIC, and 15 in WebP. A line takes 8 or
# more in addition, so the sides are limited too.
MOST_PIXELS = 40_000_000
LONGEST_SIDE = 20_000
# CPU time of the process.
CPU_SECONDS = 20
_MOST_MEGAPIXELS = MOST_PIXELS // 1_000_000
_SMALLER = "send a smaller one"
_MOST_PIXELS_OF = {"WEBP": 12_000_000, "AVIF": 16_000_000, "HEIF": 20_000_000}
# Pixels that are converted at a time.
_BAND_PIXELS = 1_000_000
FORMATS = ("JPEG", "PNG", "WEBP", "GIF", "BMP", "AVIF")
# What is sent instead of a picture, by its first bytes.
_OTHER_FORMATS: tuple[tuple[bytes, str], ...] = (
    (b"<svg", "an SVG drawing"),
    (b"<?xml", "an XML text, probably an SVG drawing"),
    (b"<!DOCTYPE", "a web page or an SVG drawing"),
    (b"<html", "a web page"),
    (b"%PDF", "a PDF document"),
    *UNREAD_PICTURES.items(),
    (b"http://", "an address"),
    (b"https://", "an address"),
)
# Boxes of AVIF and HEIC before the last one that a picture needs; what a camera puts after it may be of any form.
_BOXES = (b"ftyp", b"meta", b"mdat", b"moov", b"moof", b"free", b"skip", b"idat", b"uuid")
# The colour around pictures that are not square: 127.5 in Rockchip's demo, which all encoders were tried with.
_PADDING = (128, 128, 128)
_BACKGROUND = "white"  # after transparent parts


def fitted_pixels(data: bytes, width: int, height: int) -> bytes:
    """Return a picture as RGB lines of this size: upright, undistorted, centred on grey.

    Of an animation it is the first frame. A JPEG file is decoded at a reduced size, if that suffices.

    Raises:
        InputRefusedError: it is not a picture, damaged or too large.
    """
    # The library for HEIC gives the parts that are missing one colour.
    if _is_cut(data):
        raise InputRefusedError(_problem(data, EOFError("its end is missing")))
    try:
        formats = (*FORMATS, "HEIF") if picture_type(data) == "image/heic" and _reads_heic() else FORMATS
        image: Image.Image = Image.open(io.BytesIO(data), formats=formats)
        with image:
            _require_size(*image.size, image.format or "")
            image.draft("RGB", (2 * width, 2 * height))
            upright = ImageOps.exif_transpose(_reduce(image, width, height))
            scale = min(width / upright.width, height / upright.height)
            size = max(1, round(upright.width * scale)), max(1, round(upright.height * scale))
            canvas = Image.new("RGB", (width, height), _PADDING)
            resized = upright.resize(size, Image.Resampling.BILINEAR)
            canvas.paste(resized, ((width - size[0]) // 2, (height - size[1]) // 2))
            return canvas.tobytes()
    except (InputRefusedError, MemoryError):
        raise
    except Image.DecompressionBombError:
        raise InputRefusedError(f"the picture has far more than {_MOST_MEGAPIXELS} megapixels; {_SMALLER}") from None
    except Exception as error:  # noqa: BLE001  # Pillow's readers raise errors of any kind for damaged files
        raise InputRefusedError(_problem(data, error)) from None


def _reads_heic() -> bool:
    """Return True if the library for HEIC is installed, an extra; it is made known to Pillow."""
    try:
        from pillow_heif import register_heif_opener  # pyright: ignore[reportMissingImports, reportUnknownVariableType]
    except ImportError:
        return False
    register_heif_opener()
    return True


def _is_cut(data: bytes) -> bool:
    """Return True if an AVIF or HEIC file ends before one of its boxes does."""
    if picture_type(data) not in ("image/avif", "image/heic"):
        return False
    start = 0
    while data[start + 4 : start + 8] in _BOXES:
        size = int.from_bytes(data[start : start + 4], "big")
        if size == 1:
            size = int.from_bytes(data[start + 8 : start + 16], "big")
        if size < 8:  # 0 is to the end
            return False
        start += size
    return start > len(data)


def _require_size(width: int, height: int, kind: str) -> None:
    if max(width, height) > LONGEST_SIDE:
        sides = f"{width} x {height} pixels, and a side may have {LONGEST_SIDE:,}"
        raise InputRefusedError(f"the picture has {sides}; send a part of it")
    most = _MOST_PIXELS_OF.get(kind, MOST_PIXELS)
    if width * height > most:
        size = f"{width} x {height} pixels, more than {most // 1_000_000} megapixels"
        if most < MOST_PIXELS:
            name = {"HEIF": "HEIC", "WEBP": "WebP"}.get(kind, kind)
            advice = f"{_SMALLER}, or save it as JPEG or PNG, which may have {_MOST_MEGAPIXELS}"
            raise InputRefusedError(f"the picture has {size}, the most for {name}; {advice}")
        raise InputRefusedError(f"the picture has {size}; {_SMALLER}")


def _problem(data: bytes, error: Exception) -> str:
    head = data[:256].lstrip(b"\xef\xbb\xbf \t\r\n")
    other = next((name for start, name in _OTHER_FORMATS if head.lower().startswith(start.lower())), None)
    kind = picture_type(data)
    if kind == "image/heic" and not _reads_heic():
        return f"it is a HEIC picture, which is read after: {install_command('heic')}; or send {PICTURE_FORMATS}"
    if data[4:8] == b"ftyp" and not kind:
        other = "a video, or a picture of another format"
    if other is not None:
        return f"it is {other}, which is not read as a picture; send {PICTURE_FORMATS}"
    if not data:
        return f"the picture is empty; send {PICTURE_FORMATS}"
    if not kind:
        return f"it is no picture, or it is damaged at its beginning; send {PICTURE_FORMATS}"
    name = kind.removeprefix("image/").upper()
    # Pillow names the object that it could not read.
    reason = "" if type(error).__name__ == "UnidentifiedImageError" else f" ({error})"
    return f"the {name} picture is damaged or incomplete{reason}; send it again, or save it anew as PNG or JPEG"


def _reduce(image: Image.Image, width: int, height: int) -> Image.Image:
    """Return the picture in RGB at a fraction of its size that is still at least the wanted size."""
    image.load()
    # The larger side decides, as the picture may have to be turned.
    factor = max(1, min(max(image.size) // max(width, height), max(1, min(image.size))))
    rows = max(1, _BAND_PIXELS // (image.width * factor)) * factor
    small = Image.new("RGB", (-(-image.width // factor), -(-image.height // factor)))
    small.info = {name: image.info[name] for name in ("exif",) if name in image.info}
    # A conversion of the whole would take as much memory again.
    for top in range(0, image.height, rows):
        band = image.crop((0, top, image.width, min(top + rows, image.height)))
        if band.mode == "P" or "transparency" in band.info:
            band = band.convert("RGBA")
        elif band.mode in ("I", "F") or band.mode.startswith("I;16"):
            # 16 bits; a conversion would clip them.
            band = band.convert("I").point(lambda value: value * (1 / 256)).convert("L")
        if band.mode in ("RGBA", "LA", "PA", "RGBa", "La"):
            background = Image.new("RGBA", band.size, _BACKGROUND)
            band = Image.alpha_composite(background, band.convert("RGBA"))
        small.paste(band.convert("RGB").reduce(factor), (0, top // factor))
    return small


def main() -> None:
    """Convert the picture on standard input; the arguments are width, height and bytes of address space."""
    width, height, memory_bytes = map(int, sys.argv[-3:])
    # The kernel ends this process first if the machine has no memory left.
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000", "ascii")
    resource.setrlimit(resource.RLIMIT_AS, (memory_bytes, memory_bytes))
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    try:
        answer = b"\1" + fitted_pixels(sys.stdin.buffer.read(), width, height)
    except InputRefusedError as refusal:
        answer = b"\0" + str(refusal).encode("utf-8", "replace")
    except MemoryError:
        answer = b"\0" + b"the picture needs more memory than one may; send a smaller one, as JPEG or PNG"
    sys.stdout.buffer.write(answer)
    sys.stdout.buffer.flush()
    # What a decoder left is not freed one by one.
    os._exit(0)
