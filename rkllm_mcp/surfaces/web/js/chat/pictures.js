/**
 * Pictures of questions, as thumbnails and large in a dialog.
 *
 * @typedef {{data: string, digest?: string, conversation?: string}} Picture `data` is base64; empty until a picture
 *   that the board has stored is fetched
 */
import { api } from "../access.js";
import { openDialog } from "../dialogs/dialog.js";
import { h } from "../dom.js";
import { named } from "../i18n.js";
import { isTooLarge, sizeOf } from "./picture_size.js";

export const MOST_PICTURES = 8;
/** @type {WeakMap<Picture, Promise<string>>} the addresses in this window */
const addresses = new WeakMap();

/** A picture that is not taken, with the reason in the user's words. */
export class PictureRefused extends Error {}

/**
 * The pictures of a stored question, which are fetched when they are shown or sent again.
 *
 * @param {string} conversation its id
 * @param {string[]} digests
 * @returns {Picture[]}
 */
export function storedPictures(conversation, digests) {
  return digests.map((digest) => ({ data: "", digest, conversation }));
}

/**
 * The picture in base64; of a stored one the board is asked.
 *
 * @param {Picture} picture
 */
export async function dataOf(picture) {
  if (!picture.data) {
    const { conversation = "", digest = "" } = picture;
    const path = `/v1/conversations/${encodeURIComponent(conversation)}/pictures/${encodeURIComponent(digest)}`;
    picture.data = await base64Of(await api.blob(path));
  }
  return picture.data;
}

/**
 * Small pictures, each of which opens large.
 *
 * @param {Picture[]} pictures
 */
export function thumbnails(pictures) {
  return h(
    "div",
    { class: "thumbnails" },
    pictures.map((picture, place) => {
      const open = () => void openDialog("picture.title", { n: place + 1 }, () => [image(picture, "picture-large")]);
      return h(
        "button",
        { type: "button", class: "thumbnail", click: open, ...named("picture.show", { n: place + 1 }) },
        image(picture, "thumbnail-image"),
      );
    }),
  );
}

/**
 * @param {Picture} picture
 * @param {string} style its class
 */
export function image(picture, style) {
  // What it shows is not known; its button or line has a name.
  const node = h("img", { class: style, alt: "", decoding: "async" });
  // The board reads what this browser may not, such as HEIC; the sign of a broken page is not shown for it.
  node.addEventListener("error", () => node.replaceWith(h("span", { class: `${style} missing` })));
  const address = addresses.get(picture) ?? addressOf(picture);
  addresses.set(picture, address);
  address.then(
    (url) => node.setAttribute("src", url),
    () => {
      addresses.delete(picture);
      node.classList.add("missing");
    },
  );
  return node;
}

/**
 * The address of a picture in this window. Whoever has a key may have stored one that no browser should decode.
 *
 * @param {Picture} picture
 */
async function addressOf(picture) {
  const bytes = Uint8Array.from(atob(await dataOf(picture)), (letter) => letter.charCodeAt(0));
  const size = sizeOf(new DataView(bytes.buffer));
  if (!size || isTooLarge(size)) throw new PictureRefused();
  return URL.createObjectURL(new Blob([bytes]));
}

/**
 * @param {Blob} blob
 * @returns {Promise<string>}
 */
export function base64Of(blob) {
  return new Promise((resolve, reject) => {
    const reader = new FileReader();
    reader.addEventListener("load", () => resolve(String(reader.result).split(",")[1] ?? ""));
    reader.addEventListener("error", () => reject(reader.error));
    reader.readAsDataURL(blob);
  });
}
