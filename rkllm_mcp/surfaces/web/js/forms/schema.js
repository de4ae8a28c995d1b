/**
 * A form's schema becomes fields, and the input becomes values or the key of a phrase for the problem. The
 * same flat subset of JSON Schema that the board checks; the board has the last word.
 *
 * @typedef {"text" | "number" | "integer" | "boolean" | "choice" | "choices" | "json"} Kind
 * @typedef {{value: any, title: string}} Choice
 * @typedef {{name: string, title: string, description: string, kind: Kind, isRequired: boolean, initial: any,
 *   choices: Choice[], format: string, least: number | null, most: number | null}} Field
 * @typedef {{phrase: string, values?: Record<string, string | number>}} Problem
 */

/** @type {Record<string, Kind>} */
const KINDS = { string: "text", number: "number", integer: "integer", boolean: "boolean" };
/** @type {Record<string, RegExp>} */
const FORMATS = {
  email: /^[^@\s]+@[^@\s]+$/,
  uri: /^[A-Za-z][A-Za-z0-9+.-]*:\S/,
  date: /^\d{4}-\d{2}-\d{2}$/,
  "date-time": /^\d{4}-\d{2}-\d{2}T\d{2}:\d{2}/,
};

/**
 * @param {any} schema an object's JSON Schema
 * @returns {Field[]} in the order of the schema
 */
export function fieldsOf(schema) {
  const required = Array.isArray(schema?.required) ? schema.required : [];
  const parts = Object.entries(schema?.properties ?? {}).filter(([, part]) => isObject(part));
  return parts.map(([name, part]) => field(name, part, required.includes(name)));
}

/**
 * The input, as the value to send.
 *
 * @param {Field} field
 * @param {any} entered text, or true and false, or for choices their places in the list
 * @returns {{value?: any, problem?: Problem}} neither when the field is left out
 */
export function read(field, entered) {
  if (field.kind === "boolean") return { value: Boolean(entered) };
  if (field.kind === "choices") return readChoices(field, entered);
  const takesEmpty = field.kind === "text" && field.least === 0;
  if (entered === "") return field.isRequired && !takesEmpty ? { problem: { phrase: "form.required" } } : empty(field);
  switch (field.kind) {
    case "choice":
      return { value: field.choices[Number(entered)]?.value };
    case "json":
      return { value: parsed(entered) };
    case "text":
      return readText(field, entered);
    default:
      return readNumber(field, entered);
  }
}

/**
 * @param {string} name
 * @param {any} part
 * @param {boolean} isRequired
 * @returns {Field}
 */
function field(name, part, isRequired) {
  const isList = part.type === "array" && isObject(part.items);
  const choices = choicesOf(isList ? part.items : part);
  const plain = KINDS[part.type] ?? "json";
  const kind = choices.length === 0 ? plain : isList ? "choices" : "choice";
  const [least, most] = limits(part, kind);
  return {
    name,
    title: String(part.title || name),
    description: String(part.description ?? ""),
    kind,
    isRequired,
    initial: part.default ?? null,
    choices,
    format: kind === "text" ? String(part.format ?? "") : "",
    least: number(least),
    most: number(most),
  };
}

/**
 * @param {any} part
 * @param {Kind} kind
 */
function limits(part, kind) {
  if (kind === "text") return [part.minLength, part.maxLength];
  return kind === "choices" ? [part.minItems, part.maxItems] : [part.minimum, part.maximum];
}

/**
 * Bare values, values with `enumNames`, or titled constants.
 *
 * @param {any} part
 * @returns {Choice[]}
 */
function choicesOf(part) {
  const titled = [part.oneOf, part.anyOf].find(Array.isArray);
  if (titled) {
    const constants = titled.filter((option) => isObject(option) && "const" in option);
    return constants.map((option) => ({ value: option.const, title: String(option.title ?? option.const) }));
  }
  const names = Array.isArray(part.enumNames) ? part.enumNames : [];
  return (Array.isArray(part.enum) ? part.enum : []).map((/** @type {any} */ value, /** @type {number} */ place) => ({
    value,
    title: String(names[place] ?? value),
  }));
}

/**
 * @param {Field} field
 * @param {number[]} places
 */
function readChoices(field, places) {
  const count = places.length;
  if (count === 0 && !field.isRequired) return {};
  if (count === 0 && !field.least && field.isRequired) return { value: [] };
  if (field.least !== null && count < field.least) return problem("form.choose_least", field.least);
  if (field.most !== null && count > field.most) return problem("form.choose_most", field.most);
  return { value: places.map((place) => field.choices[place]?.value) };
}

/**
 * @param {Field} field
 * @param {string} text
 */
function readText(field, text) {
  // The board counts characters, not the halves that some of them are made of here.
  const length = [...text].length;
  if (field.least !== null && length < field.least) return problem("form.short", field.least);
  if (field.most !== null && length > field.most) return problem("form.long", field.most);
  if (FORMATS[field.format]?.test(text) === false) return { problem: { phrase: `form.format.${field.format}` } };
  // A browser's field has no time zone; the moment meant is the one on the clock of the user.
  const isLocal = field.format === "date-time" && !/(?:[zZ]|[+-]\d{2}:?\d{2})$/.test(text);
  return { value: isLocal ? new Date(text).toISOString() : text };
}

/**
 * @param {Field} field
 * @param {string} text
 */
function readNumber(field, text) {
  const value = Number(text.normalize("NFKC"));
  if (!Number.isFinite(value)) return { problem: { phrase: "form.number" } };
  if (field.kind === "integer" && !Number.isInteger(value)) return { problem: { phrase: "form.integer" } };
  if (field.least !== null && value < field.least) return problem("form.least", field.least);
  if (field.most !== null && value > field.most) return problem("form.most", field.most);
  return { value };
}

/** @param {Field} field */
function empty(field) {
  // A default that was deleted was meant to be: without a value the board would put it back.
  return field.kind === "text" && field.initial !== null ? { value: "" } : {};
}

/**
 * @param {string} phrase
 * @param {number} count
 */
function problem(phrase, count) {
  return { problem: { phrase, values: { count } } };
}

/** @param {string} text */
function parsed(text) {
  try {
    return JSON.parse(text);
  } catch {
    return text;
  }
}

/** @param {unknown} value */
function number(value) {
  return typeof value === "number" ? value : null;
}

/** @param {unknown} value */
function isObject(value) {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}
