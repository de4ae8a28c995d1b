/**
 * A form made from a schema. It checks the input, shows a problem at its field, and returns values; it
 * knows nothing of who gets them.
 *
 * @typedef {import("./schema.js").Field} Field
 * @typedef {{field: Field, node: HTMLElement, input: HTMLElement, error: HTMLElement, entered: () => any}} Row
 */
import { form } from "../buttons.js";
import { h } from "../dom.js";
import { say, t } from "../i18n.js";
import { fieldsOf, read } from "./schema.js";

// So many choices are shown side by side; more become a list to open.
const MOST_RADIOS = 5;
/** @type {Record<string, string>} */
const INPUTS = { email: "email", uri: "url", password: "password", date: "date", "date-time": "datetime-local" };
const counter = { last: 0 };

export class FormView {
  /** @type {Row[]} */
  #rows;

  /**
   * @param {any} schema
   * @param {(content: Record<string, unknown>) => void} submit receives the input when it is valid
   */
  constructor(schema, submit) {
    this.#rows = fieldsOf(schema).map(row);
    const send = () => {
      const content = this.#content();
      if (content) submit(content);
    };
    this.node = form(send, { class: "form" }, this.#rows.map((shown) => shown.node));
  }

  /**
   * Show what the server found wrong.
   *
   * @param {string} place the name of a field, or a path that ends with it
   * @param {string} message
   * @returns {boolean} whether the field exists
   */
  complain(place, message) {
    const name = place.split(/[./]/).at(-1);
    const found = this.#rows.find(({ field }) => field.name === place || field.name === name);
    if (!found) return false;
    mark(found, message);
    found.input.focus();
    return true;
  }

  /** @returns {Record<string, unknown> | null} null when something is wrong, which is shown then */
  #content() {
    /** @type {Record<string, unknown>} */
    const content = {};
    /** @type {Row | null} */
    let first = null;
    for (const shown of this.#rows) {
      const { value, problem } = read(shown.field, shown.entered());
      mark(shown, problem ? t(problem.phrase, problem.values) : "");
      if (problem) first ??= shown;
      else if (value !== undefined) content[shown.field.name] = value;
    }
    first?.input.focus();
    return first ? null : content;
  }
}

/**
 * @param {Field} field
 * @returns {Row}
 */
function row(field) {
  counter.last += 1;
  const id = `field-${counter.last}`;
  const error = h("p", { class: "error", id: `${id}-error` });
  const help = h("p", { class: "muted", id: `${id}-help` }, field.description);
  const described = { "aria-describedby": field.description ? `${id}-help ${id}-error` : `${id}-error` };
  const made = isGroup(field) ? group(field, id, described) : single(field, id, described);
  const isBefore = field.kind === "boolean";
  // With its own value it is filled in already.
  const isMarked = field.isRequired && !isBefore && field.initial === null;
  const title = [
    field.title,
    isMarked && h("span", { class: "required" }, " ", say("form.must")),
  ];
  const label = h(isGroup(field) ? "legend" : "label", isGroup(field) ? {} : { for: id }, title);
  const node = h(
    isGroup(field) ? "fieldset" : "div",
    { class: `field ${field.kind}` },
    isBefore ? [made.node, label] : [label, made.node],
    field.description && help,
    error,
  );
  return { field, node, input: made.input, error, entered: made.entered };
}

/** @param {Field} field */
function isGroup(field) {
  return field.kind === "choices" || (field.kind === "choice" && field.choices.length <= MOST_RADIOS);
}

/**
 * Some choices side by side.
 *
 * @param {Field} field
 * @param {string} id
 * @param {import("../dom.js").Attributes} described
 */
function group(field, id, described) {
  const type = field.kind === "choices" ? "checkbox" : "radio";
  const chosen = field.kind === "choices" && Array.isArray(field.initial) ? field.initial : [field.initial];
  const inputs = field.choices.map(({ value }, place) =>
    h("input", { type, name: id, id: `${id}-${place}`, value: place, checked: chosen.includes(value), ...described }),
  );
  const options = inputs.map((input, place) =>
    h("label", { class: "option" }, input, " ", field.choices[place]?.title),
  );
  const places = () => inputs.flatMap((input, place) => (input.checked ? [place] : []));
  const entered = field.kind === "choices" ? places : () => String(places()[0] ?? "");
  return { node: h("div", { class: "options" }, options), input: /** @type {HTMLElement} */ (inputs[0]), entered };
}

/**
 * @param {Field} field
 * @param {string} id
 * @param {import("../dom.js").Attributes} described
 * @returns {{node: HTMLElement, input: HTMLElement, entered: () => any}}
 */
function single(field, id, described) {
  const shared = { id, name: field.name, ...described, "aria-required": field.isRequired || undefined };
  if (field.kind === "boolean") {
    const input = h("input", {
      type: "checkbox",
      ...shared,
      "aria-required": undefined,
      checked: field.initial === true,
    });
    return { node: input, input, entered: () => input.checked };
  }
  if (field.kind === "choice") {
    const initial = field.choices.findIndex(({ value }) => value === field.initial);
    const options = field.choices.map(({ title }, place) =>
      h("option", { value: place, selected: place === initial }, title),
    );
    const input = h("select", shared, h("option", { value: "" }), options);
    return { node: input, input, entered: () => input.value };
  }
  if (field.kind === "json" || (field.kind === "text" && (field.most ?? 0) > 200)) {
    const input = h("textarea", { rows: 3, ...shared }, initialText(field));
    return { node: input, input, entered: () => input.value };
  }
  const isNumber = field.kind !== "text";
  const type = INPUTS[field.format] ?? "text";
  const mode = isNumber ? (field.kind === "integer" && (field.least ?? -1) >= 0 ? "numeric" : "decimal") : undefined;
  const input = h("input", { type, inputmode: mode, autocomplete: "off", ...shared, value: initialText(field) });
  return { node: input, input, entered: () => input.value };
}

/** @param {Field} field */
function initialText(field) {
  if (field.initial === null) return "";
  if (field.kind === "json" && typeof field.initial !== "string") return JSON.stringify(field.initial);
  const text = String(field.initial);
  // The browser's field for a moment takes none with a time zone: its value is in the zone of this clock.
  if (field.format !== "date-time" || Number.isNaN(Date.parse(text))) return text;
  const at = new Date(text);
  return new Date(at.getTime() - at.getTimezoneOffset() * 60_000).toISOString().slice(0, 16);
}

/**
 * @param {Row} shown
 * @param {string} message empty when nothing is wrong
 */
function mark(shown, message) {
  shown.error.textContent = message;
  const inputs = shown.node.querySelectorAll("input, select, textarea");
  for (const input of inputs) {
    if (message) input.setAttribute("aria-invalid", "true");
    else input.removeAttribute("aria-invalid");
  }
}
