/**
 * The size of a picture before anything of it is decoded: a file of some kB may have gigabytes of pixels.
 *
 * @typedef {{width: number, height: number}} Size
 */

// Of a file whose parts come in any order.
const HEAD_BYTES = 262_144;
// As on the board, which decodes HEIC with more memory.
export const MOST_MEGAPIXELS = 40;
export const MOST_MEGAPIXELS_OF_HEIC = 20;
const MEGAPIXEL = 1_000_000;
const LONGEST_SIDE = 20_000;
// Lengths of the second header of BMP files; a text may begin with BM as well.
const BMP_HEADERS = [40, 52, 56, 64, 108, 124];

/**
 * @param {Size} size
 * @param {number} [most] megapixels
 */
export function isTooLarge({ width, height }, most = MOST_MEGAPIXELS) {
  return width * height > most * MEGAPIXEL || Math.max(width, height) > LONGEST_SIDE;
}

/**
 * Whether it begins like a picture, whatever its name says.
 *
 * @param {DataView} head
 */
export function isPicture(head) {
  return isHeic(head) || sizeOf(head) !== null || (head.byteLength >= 30 && head.getUint32(0) >>> 8 === 0xffd8ff);
}

/**
 * A photo of a phone, which most browsers do not decode.
 *
 * @param {DataView} head
 */
export function isHeic(head) {
  return head.byteLength >= 12 && /^ftyp(hei[cxms]|hev[cx]|mif1|msf1)/.test(String.fromCharCode(...new Uint8Array(head.buffer, 4, 8)));
}

/**
 * The size that the head of a JPEG, PNG, GIF, BMP or WebP file names, or of AVIF and HEIC; null for any other.
 *
 * @param {DataView} head
 * @returns {{width: number, height: number} | null}
 */
export function sizeOf(head) {
  const end = head.byteLength;
  const start = end >= 30 ? head.getUint32(0) : 0;
  if (start === 0x89504e47) return { width: head.getUint32(16), height: head.getUint32(20) };
  if (start === 0x47494638) return { width: head.getUint16(6, true), height: head.getUint16(8, true) };
  if (start >>> 16 === 0x424d && head.getUint32(14, true) === 12)
    return { width: head.getUint16(18, true), height: head.getUint16(20, true) };
  if (start >>> 16 === 0x424d && !BMP_HEADERS.includes(head.getUint32(14, true))) return null;
  if (start >>> 16 === 0x424d) return { width: head.getInt32(18, true), height: Math.abs(head.getInt32(22, true)) };
  if (start === 0x52494646 && head.getUint32(8) === 0x57454250) return webpSize(head);
  if (end >= 30 && head.getUint32(4) === 0x66747970) return heifSize(head);
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

/**
 * The largest of the pictures that the boxes "ispe" of AVIF and HEIC name.
 *
 * @param {DataView} head
 */
function heifSize(head) {
  let size = null;
  for (let place = 8; place + 16 <= Math.min(head.byteLength, HEAD_BYTES); place++) {
    if (head.getUint32(place) !== 0x69737065) continue;
    const [width, height] = [head.getUint32(place + 8), head.getUint32(place + 12)];
    if (!size || width * height > size.width * size.height) size = { width, height };
  }
  return size;
}
