/**
 * Choosing what goes with a question, a file, a photo or a resource of a server; and a prompt of a server to ask.
 *
 * @typedef {{server: string, uri: string, name: string}} Resource
 */
import { api } from "../access.js";
import { choices, submitButton } from "../buttons.js";
import { h, icon } from "../dom.js";
import { FormView } from "../forms/view.js";
import { say } from "../i18n.js";
import { openMenu } from "../menu.js";
import { showLine } from "../toast.js";
import { holds } from "../words.js";
import { openDialog } from "./dialog.js";

// As many can be looked through.
const FEW = 6;

/**
 * Choose what goes with a question: files at once, and on a phone its camera.
 *
 * @param {HTMLElement} from the button
 * @param {{files: (files: File[]) => void, resource: (resource: Resource) => void}} add
 */
export function openAttach(from, add) {
  const choose = (/** @type {import("../dom.js").Attributes} */ kind) => {
    const input = h("input", { type: "file", hidden: true, ...kind });
    input.addEventListener("change", () => add.files([...(input.files ?? [])]));
    for (const over of ["change", "cancel"]) input.addEventListener(over, () => input.remove());
    // In the page, because a browser may drop the choice of one that is not.
    from.after(input);
    input.click();
  };
  const isPhone = matchMedia("(pointer: coarse)").matches;
  openMenu(from, [
    ...(isPhone ? [{ phrase: "attach.camera", act: () => choose({ accept: "image/*", capture: "environment" }) }] : []),
    { phrase: "attach.choose", act: () => choose({ multiple: true }) },
    { phrase: "attach.resource", act: () => void chooseResource(from, add.resource) },
  ]);
}

/**
 * @param {HTMLElement} from the button
 * @param {(resource: Resource) => void} add
 */
async function chooseResource(from, add) {
  const { resources, templates } = await awaited(from, api.get("/v1/resources"));
  if (resources.length + templates.length === 0) {
    showLine("attach.none");
    return;
  }
  const named = resources.map((/** @type {any} */ resource) => ({ ...resource, name: resource.name || resource.uri }));
  if (named.length === 1 && templates.length === 0) {
    add(named[0]);
    return;
  }
  await openDialog("attach.resource", {}, (close) => {
    const take = (/** @type {Resource} */ resource) => {
      close();
      add(resource);
    };
    const rows = named.map((/** @type {any} */ resource) =>
      row("clip", resource.name, [resource.server, resource.uri], resource.description, () => take(resource)),
    );
    return [listing([...rows, ...templates.map((/** @type {any} */ template) => templateRow(template, take))])];
  });
}

/**
 * Choose a prompt of a server and fill in its arguments.
 *
 * @param {HTMLElement} from the button
 * @returns {Promise<{name: string, arguments: Record<string, string>} | null>}
 */
export async function chosenPrompt(from) {
  const { prompts } = await awaited(from, api.get("/v1/prompts"));
  if (prompts.length === 0) {
    showLine("prompts.none");
    return null;
  }
  const answer = await openDialog("prompts.title", {}, (close) => {
    const body = h("div");
    const take = (/** @type {any} */ prompt, /** @type {Record<string, unknown>} */ given) =>
      close(JSON.stringify({ name: `${prompt.server}:${prompt.name}`, arguments: given }));
    const choose = (/** @type {any} */ prompt) =>
      prompt.arguments?.length ? body.replaceChildren(argumentsForm(prompt, take)) : take(prompt, {});
    const rows = prompts.map((/** @type {any} */ prompt) =>
      row("prompt", prompt.name, [prompt.server], prompt.description, () => choose(prompt)),
    );
    if (prompts.length === 1 && prompts[0].arguments?.length) choose(prompts[0]);
    else body.append(listing(rows));
    return [body];
  });
  return answer ? JSON.parse(answer) : null;
}

/**
 * A list of offers; a long one has a field that narrows it.
 *
 * @param {HTMLElement[]} rows
 */
function listing(rows) {
  const list = h("ul", { class: "offers" }, rows);
  if (rows.length <= FEW) return list;
  const search = h("input", { type: "search", id: "offer-search", autocomplete: "off" });
  search.addEventListener("input", () => {
    for (const item of rows) item.hidden = !holds(item.textContent ?? "", search.value);
  });
  return h("div", {}, h("div", { class: "field" }, h("label", { for: search.id }, say("search")), search), list);
}

/**
 * What the board sends; meanwhile the button is busy.
 *
 * @template T
 * @param {HTMLElement} from
 * @param {Promise<T>} request
 */
async function awaited(from, request) {
  from.setAttribute("aria-busy", "true");
  try {
    return await request;
  } finally {
    from.removeAttribute("aria-busy");
  }
}

/**
 * @param {string} symbol
 * @param {string} title
 * @param {string[]} where
 * @param {string} description
 * @param {() => void} choose
 */
function row(symbol, title, where, description, choose) {
  const lines = [
    h("strong", {}, title),
    h("span", { class: "muted" }, where.join(" · ")),
    description && h("span", {}, description),
  ];
  return h(
    "li",
    {},
    h(
      "button",
      { type: "button", class: "offer", click: choose },
      icon(symbol),
      h("span", { class: "offer-words" }, lines),
    ),
  );
}

/**
 * A family of resources: an address with blanks to fill.
 *
 * @param {any} template
 * @param {(resource: Resource) => void} take
 */
function templateRow(template, take) {
  const pattern = String(template.uri_template ?? template.uri ?? "");
  const blanks = [...pattern.matchAll(/\{[+#./;?&]?(\w+)[^}]*\}/g)].map((found) => String(found[1]));
  const schema = { properties: Object.fromEntries(blanks.map((name) => [name, { type: "string" }])), required: blanks };
  const form = new FormView(schema, (content) => {
    const uri = pattern.replaceAll(/\{([+#]?)[./;?&]?(\w+)[^}]*\}/g, (_, raw, name) =>
      raw ? encodeURI(String(content[name])) : encodeURIComponent(String(content[name])),
    );
    take({ server: template.server, uri, name: uri });
  });
  form.node.append(submitButton("attach.insert", {}));
  const title = h(
    "summary",
    {},
    icon("clip"),
    h(
      "span",
      { class: "offer-words" },
      h("strong", {}, template.name || pattern),
      h("span", { class: "muted" }, `${template.server} · ${pattern}`),
    ),
  );
  return h(
    "li",
    {},
    h("details", { class: "offer-form" }, title, template.description && h("p", {}, template.description), form.node),
  );
}

/**
 * @param {any} prompt
 * @param {(prompt: any, given: Record<string, unknown>) => void} take
 */
function argumentsForm(prompt, take) {
  const parts = prompt.arguments.map((/** @type {any} */ blank) => [
    blank.name,
    { type: "string", description: blank.description },
  ]);
  const required = prompt.arguments
    .filter((/** @type {any} */ blank) => blank.required)
    .map((/** @type {any} */ blank) => blank.name);
  const form = new FormView({ properties: Object.fromEntries(parts), required }, (content) => take(prompt, content));
  form.node.append(choices(submitButton("prompts.ask")));
  queueMicrotask(() => /** @type {HTMLElement | null} */ (form.node.querySelector("input, textarea"))?.focus());
  return h(
    "div",
    {},
    h("h3", {}, prompt.name),
    prompt.description && h("p", { class: "muted" }, prompt.description),
    form.node,
  );
}
