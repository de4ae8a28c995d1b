/**
 * A picture from a file: the browser makes it small enough to send, upright and without the place where it was taken.
 *
 * @typedef {import("./pictures.js").Picture} Picture
 */
import { h } from "../dom.js";
import { t } from "../i18n.js";
import { isHeic, isTooLarge, MOST_MEGAPIXELS, MOST_MEGAPIXELS_OF_HEIC, sizeOf } from "./picture_size.js";
import { base64Of, PictureRefused } from "./pictures.js";

// Three times the input of most encoders, which reduce it further: 100 to 400 kB as JPEG.
const LONGEST_SIDE = 1344;
const QUALITY = 0.92;

/**
 * Make a picture of a file.
 *
 * @param {File} file
 * @param {DataView} head its beginning
 * @returns {Promise<Picture>}
 * @throws {PictureRefused} it is not a picture that this browser reads, or too large
 */
export async function readPicture(file, head) {
  const size = sizeOf(head);
  if (size && isTooLarge(size)) throw new PictureRefused(t("picture.large", { ...size, most: MOST_MEGAPIXELS }));
  const bitmap = await createImageBitmap(file).catch(() => null);
  // Most browsers do not read HEIC; the board may, or says what it needs for that.
  if (!bitmap && isHeic(head)) {
    if (size && isTooLarge(size, MOST_MEGAPIXELS_OF_HEIC))
      throw new PictureRefused(t("picture.large_heic", { ...size, most: MOST_MEGAPIXELS_OF_HEIC }));
    return { data: await base64Of(file) };
  }
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
