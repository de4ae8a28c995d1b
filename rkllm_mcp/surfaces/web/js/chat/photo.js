/**
 * A picture from a file: the browser makes it small enough to send, upright and without the place where it was taken.
 *
 * @typedef {import("./pictures.js").Picture} Picture
 */
import { h } from "../dom.js";
import { t } from "../i18n.js";
import { base64Of, PictureRefused } from "./pictures.js";

// Three times the input of most encoders, which reduce it further: 100 to 400 kB as JPEG.
const LONGEST_SIDE = 1344;
const QUALITY = 0.92;
// As on the board, and looked at before anything is decoded.
const MOST_PIXELS = 40_000_000;
const HEAD_BYTES = 262_144;

/**
 * Make a picture of a file.
 *
 * @param {File} file
 * @returns {Promise<Picture>}
 * @throws {PictureRefused} it is no picture that this browser reads, or too large
 */
export async function readPicture(file) {
  const size = sizeOf(new DataView(await file.slice(0, HEAD_BYTES).arrayBuffer()));
  if (size && size.width * size.height > MOST_PIXELS) throw new PictureRefused(t("picture.large", size));
  const bitmap = await createImageBitmap(file).catch(() => null);
  // Most browsers do not read HEIC; the board may, or says what it needs for that.
  if (!bitmap && (await isHeic(file))) return { data: await base64Of(file) };
  if (!bitmap) throw new PictureRefused(t("picture.unreadable"));
  const scale = Math.min(1, LONGEST_SIDE / Math.max(bitmap.width, bitmap.height));
  const width = Math.max(1, Math.round(bitmap.width * scale));
  const height = Math.max(1, Math.round(bitmap.height * scale));
  const canvas = h("canvas", { width, height });
  const context = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"));
  context.imageSmoothingQuality = "high";
  // Transparent parts are white, as on the board.
  context.fillStyle = "white";
  context.fillRect(0, 0, width, height);
  context.drawImage(bitmap, 0, 0, width, height);
  bitmap.close();
  const made = await new Promise((resolve) => {
    canvas.toBlob(resolve, "image/jpeg", QUALITY);
  });
  if (!(made instanceof Blob)) throw new PictureRefused(t("picture.unreadable"));
  return { data: await base64Of(made) };
}

/** @param {File} file */
async function isHeic(file) {
  return /^.{4}ftyp(hei[cx]|mif1)/s.test(await file.slice(0, 12).text());
}

/**
 * The size that the head of a JPEG, PNG, GIF, BMP or WebP file names; null for any other.
 *
 * @param {DataView} head
 * @returns {{width: number, height: number} | null}
 */
export function sizeOf(head) {
  const end = head.byteLength;
  const start = end >= 30 ? head.getUint32(0) : 0;
  if (start === 0x89504e47) return { width: head.getUint32(16), height: head.getUint32(20) };
  if (start === 0x47494638) return { width: head.getUint16(6, true), height: head.getUint16(8, true) };
  if (start >>> 16 === 0x424d) return { width: head.getInt32(18, true), height: Math.abs(head.getInt32(22, true)) };
  if (start === 0x52494646 && head.getUint32(8) === 0x57454250) return webpSize(head);
  if (start >>> 16 !== 0xffd8) return null;
  for (let place = 2; place + 9 < end; place += 2 + head.getUint16(place + 2)) {
    const marker = head.getUint16(place);
    // Frame headers are C0 to CF without the tables C4, C8 and CC.
    if (marker >= 0xffc0 && marker <= 0xffcf && ![0xffc4, 0xffc8, 0xffcc].includes(marker))
      return { width: head.getUint16(place + 7), height: head.getUint16(place + 5) };
    if (marker >>> 8 !== 0xff) return null;
  }
  return null;
}

/** @param {DataView} head */
function webpSize(head) {
  const kind = head.getUint8(15);
  if (kind === 0x58) {
    const three = (/** @type {number} */ place) => head.getUint16(place, true) + (head.getUint8(place + 2) << 16);
    return { width: three(24) + 1, height: three(27) + 1 };
  }
  if (kind === 0x4c) {
    const bits = head.getUint32(21, true);
    return { width: (bits & 0x3fff) + 1, height: ((bits >>> 14) & 0x3fff) + 1 };
  }
  return { width: head.getUint16(26, true) & 0x3fff, height: head.getUint16(28, true) & 0x3fff };
}
