/**
 * What the page says, in the language that was chosen or that the browser prefers. A phrase on the page carries its key,
 * so that another language can be put in place while an answer is still running.
 *
 * @typedef {"en" | "ja"} Language
 * @typedef {Record<string, string | number>} Values
 */
import { h } from "./dom.js";
import en from "./phrases.en.js";

/** @type {Record<string, string[]>} the attributes that say a phrase, by the one that names it; text is none */
const PLACES = { say: [], name: ["aria-label", "title"], label: ["aria-label"], hint: ["placeholder"] };
const LANGUAGES = /** @type {const} */ (["en", "ja"]);
/** @type {Partial<Record<Language, Record<string, string>>>} that of another language is loaded when it is spoken */
const catalogues = { en };
/** @type {{language: Language}} */
const now = { language: "en" };

/**
 * @param {readonly string[]} preferred such as `navigator.languages`
 * @returns {Language}
 */
export function bestLanguage(preferred) {
  const known = preferred.map((tag) => tag.toLowerCase().split("-")[0]);
  return LANGUAGES.find((language) => language === known.find((tag) => tag === "ja" || tag === "en")) ?? "en";
}

/** @returns {Language} */
export function language() {
  return now.language;
}

/**
 * Say everything in another language.
 *
 * @param {Language} wanted
 */
export async function speak(wanted) {
  catalogues[wanted] ??= /** @type {Record<string, string>} */ ((await import(`./phrases.${wanted}.js`)).default);
  now.language = wanted;
  document.documentElement.lang = wanted;
  translate(document.documentElement);
}

/**
 * A phrase, or the one of a count of one, `key_one`, where there is one.
 *
 * @param {string} key
 * @param {Values} [values] the values of each `{name}`
 * @returns {string}
 */
export function t(key, values = {}) {
  const phrases = catalogues[now.language];
  const phrase = (values.count === 1 ? phrases?.[`${key}_one`] : undefined) ?? phrases?.[key];
  if (phrase === undefined) throw new Error(`there is no phrase ${key}`);
  return phrase.replaceAll(/\{(\w+)\}/g, (_, name) => {
    const value = values[name] ?? "";
    return typeof value === "number" ? figure(value, 1) : value;
  });
}

/**
 * A phrase as a node.
 *
 * @param {string} key
 * @param {Values} [values]
 */
export function say(key, values) {
  return h("span", { "data-say": key, "data-say-with": values && JSON.stringify(values) }, t(key, values));
}

/**
 * The attributes of something that shows no text: its name for screen readers, and the hint for a pointer.
 *
 * @param {string} key
 * @param {Values} [values]
 */
export function named(key, values) {
  const name = t(key, values);
  return { "aria-label": name, title: name, "data-name": key, "data-name-with": values && JSON.stringify(values) };
}

/**
 * The name of something that only screen readers want one for.
 *
 * @param {string} key
 */
export function labelled(key) {
  return { "aria-label": t(key), "data-label": key };
}

/**
 * @param {number} value
 * @param {number} [digits] after the point, at most
 */
export function figure(value, digits = 0) {
  const make = () => new Intl.NumberFormat(now.language, { maximumFractionDigits: digits });
  return formatOf(`${now.language} ${digits}`, make).format(value);
}

/** @type {Map<string, any>} */
const formats = new Map();

/**
 * The format of this name; it is made once, which takes far longer than its use.
 *
 * @template Format
 * @param {string} name
 * @param {() => Format} make
 * @returns {Format}
 */
function formatOf(name, make) {
  const format = formats.get(name) ?? make();
  formats.set(name, format);
  return format;
}

/**
 * @param {number} seconds since 1970
 * @returns {string} the time of today, or the date
 */
export function moment(seconds) {
  const at = new Date(seconds * 1000);
  // The time needs no format, whose making takes as long as several draws.
  if (at.toDateString() === new Date().toDateString()) return at.toTimeString().slice(0, "23:59".length);
  const make = () => new Intl.DateTimeFormat(now.language, { month: "short", day: "numeric" });
  return formatOf(`${now.language} date`, make).format(at);
}

/** @param {HTMLElement} root */
function translate(root) {
  for (const [kind, places] of Object.entries(PLACES)) {
    for (const node of /** @type {NodeListOf<HTMLElement>} */ (root.querySelectorAll(`[data-${kind}]`))) {
      const phrase = t(node.dataset[kind] ?? "", JSON.parse(node.dataset[`${kind}With`] ?? "{}"));
      if (kind === "say") node.textContent = phrase;
      for (const place of places) node.setAttribute(place, phrase);
    }
  }
}
