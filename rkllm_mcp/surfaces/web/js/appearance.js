/** The language and the look of the page, as this browser remembers them. */
import { byId } from "./dom.js";
import { bestLanguage, speak } from "./i18n.js";
import { preference } from "./preferences.js";

/** @type {Record<string, string>} when the style sheet with the dark colours holds */
const DARK = { light: "not all", dark: "all" };

/** Speak the language that was chosen, or the one that the browser prefers. */
export async function applyLanguage() {
  const chosen = preference("language");
  await speak(chosen === "en" || chosen === "ja" ? chosen : bestLanguage(navigator.languages));
}

/** Show text of the size that was chosen. */
export function applyTextSize() {
  document.documentElement.dataset["size"] = preference("size");
}

/** Show the colours that were chosen; without a choice those that the system wants. */
export function applyTheme() {
  const dark = /** @type {HTMLLinkElement} */ (byId("dark"));
  dark.media = DARK[preference("theme")] ?? "(prefers-color-scheme: dark)";
}
