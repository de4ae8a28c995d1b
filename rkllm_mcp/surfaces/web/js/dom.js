/**
 * Making nodes. Text goes into text nodes only, and attributes that could run something are refused, so nothing that a
 * model or a server says can become markup or a script.
 */

const SVG = "http://www.w3.org/2000/svg";
const ICONS = new URL("../icons.svg", import.meta.url).pathname;
const NEVER = /^(on|style$|srcdoc$)/i;
// Characters that control, or that turn the direction of writing: with them a name looks like another one.
const TURNING = /[\u0000-\u0008\u000b\u000c\u000e-\u001f\u007f-\u009f\u202a-\u202e\u2066-\u2069]/g;
const SHOWN = /^(aria-label|title|alt|placeholder)$/;

/**
 * @typedef {Node | string | number | null | undefined | false} Child
 * @typedef {Record<string, unknown>} Attributes a function is a listener for the event of that name, without `on`; what
 *   begins with `aria-` spells true and false out
 */

/**
 * @template {keyof HTMLElementTagNameMap} T
 * @param {T} tag
 * @param {Attributes} [attributes] true is an attribute without a value; false, null and undefined are none
 * @param {...(Child | Child[])} children
 * @returns {HTMLElementTagNameMap[T]}
 */
export function h(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  setAttributes(element, attributes);
  append(element, children.flat());
  return element;
}

/**
 * @param {string} tag
 * @param {Attributes} [attributes]
 * @param {...(Child | Child[])} children
 * @returns {SVGElement}
 */
export function s(tag, attributes = {}, ...children) {
  const element = document.createElementNS(SVG, tag);
  setAttributes(element, attributes);
  append(element, children.flat());
  return element;
}

/**
 * The node of what a library has made.
 *
 * @param {import("./markdown/libraries.js").Tree} tree
 * @returns {Node}
 */
export function nodeOf(tree) {
  if (typeof tree === "string") return new Text(tree);
  const { tag, space, attributes, style, children } = tree;
  if (!tag) {
    const fragment = new DocumentFragment();
    fragment.append(...children.map(nodeOf));
    return fragment;
  }
  const element = space ? document.createElementNS(space, tag) : document.createElement(tag);
  setAttributes(element, attributes);
  Object.assign(/** @type {HTMLElement} */ (element).style, style);
  element.append(...children.map(nodeOf));
  return element;
}

/**
 * A symbol of the page's own set, hidden from screen readers: text next to it has its meaning.
 *
 * @param {string} name
 */
export function icon(name) {
  const symbol = s("svg", { class: "icon", "aria-hidden": "true", focusable: "false" });
  symbol.append(s("use", { href: `${ICONS}#${name}` }));
  return symbol;
}

/**
 * @param {Element} element
 * @param {...(Child | Child[])} children
 */
export function fill(element, ...children) {
  element.replaceChildren();
  append(element, children.flat());
}

/**
 * Draw a list anew; the focus stays on the same control of the same entry. Where that is gone it goes to another of the
 * entry, else to `instead`: at the top of the page a keyboard would begin again.
 *
 * @param {HTMLElement} root its entries have `data-entry`; a control whose words change has `data-control`
 * @param {() => void} draw
 * @param {HTMLElement} instead
 */
export function redraw(root, draw, instead) {
  const focused = /** @type {HTMLElement | null} */ (document.activeElement);
  const hadFocus = focused !== null && root.contains(focused);
  const name = focused && nameOf(focused);
  const entry = /** @type {HTMLElement | null} */ (focused?.closest("[data-entry]") ?? null)?.dataset["entry"];
  draw();
  // It may not have been drawn anew.
  if (!hadFocus || root.contains(document.activeElement)) return;
  const place = entry === undefined ? root : root.querySelector(`[data-entry="${CSS.escape(entry)}"]`);
  const controls = [...(place?.querySelectorAll("button, a[href], input, select, textarea, summary, [tabindex]") ?? [])];
  const same = controls.find((control) => nameOf(control) === name) ?? (entry === undefined ? undefined : controls[0]);
  const next = /** @type {HTMLElement} */ (same ?? instead);
  next.focus({ preventScroll: same === undefined });
  // No further than until it is seen, where a long list was in view.
  if (same === undefined) next.scrollIntoView({ block: "nearest" });
}

/** @param {Element} control */
function nameOf(control) {
  const { control: name } = /** @type {HTMLElement} */ (control).dataset;
  return name ?? `${control.tagName} ${control.getAttribute("aria-label") ?? control.textContent}`;
}

/**
 * The facts that exist, in one line.
 *
 * @param {Child[]} facts
 * @param {string} [between]
 * @returns {Child[]}
 */
export function joined(facts, between = " · ") {
  return facts.filter(Boolean).flatMap((fact, place) => (place > 0 ? [between, fact] : [fact]));
}

/**
 * Say something where screen readers listen. An unchanged text is left alone: it would be read out again.
 *
 * @param {Element} element
 * @param {Node | string} words empty for nothing
 */
export function tell(element, words) {
  const shown = words instanceof Node ? words : plain(words);
  if (element.textContent !== (shown instanceof Node ? shown.textContent : shown)) element.replaceChildren(shown);
}

/**
 * Hide or show something. An unchanged element is left alone: setting the attribute again has its style computed again.
 *
 * @param {HTMLElement} element
 * @param {boolean} isHidden
 */
export function hide(element, isHidden) {
  if (element.hidden !== isHidden) element.hidden = isHidden;
}

/**
 * The element of the page with this id.
 *
 * @param {string} id
 * @returns {HTMLElement}
 */
export function byId(id) {
  const element = document.getElementById(id);
  if (element === null) throw new Error(`the page has no element #${id}`);
  return element;
}

/**
 * @param {Element} element
 * @param {Attributes} attributes
 */
function setAttributes(element, attributes) {
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === "function") {
      element.addEventListener(name, /** @type {EventListener} */ (value));
    } else if (NEVER.test(name)) {
      throw new Error(`the attribute ${name} is not set from scripts`);
    } else if (name.startsWith("aria-") && typeof value === "boolean") {
      element.setAttribute(name, String(value));
    } else if (value === true) {
      element.setAttribute(name, "");
    } else if (value !== false && value !== null && value !== undefined) {
      element.setAttribute(name, SHOWN.test(name) ? plain(value) : String(value));
    }
  }
}

/**
 * A text without characters that control or turn the direction of writing.
 *
 * @param {unknown} text
 */
export function plain(text) {
  return String(text).replace(TURNING, "");
}

/**
 * @param {Element} element
 * @param {Child[]} children
 */
function append(element, children) {
  for (const child of children) {
    if (child instanceof Node) element.append(child);
    else if (child !== null && child !== undefined && child !== false) element.append(plain(child));
  }
}

/** Whether the keyboard is on the screen, as a phone's is. */
export function hasNoKeys() {
  return matchMedia("(hover: none) and (pointer: coarse)").matches;
}
