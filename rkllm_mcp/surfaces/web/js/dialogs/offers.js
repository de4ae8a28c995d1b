/**
 * Choosing what goes with a question: files and resources of servers, in one dialog; and a prompt of a server to ask.
 *
 * @typedef {{server: string, uri: string, name: string}} Resource
 */
import { api } from "../access.js";
import { button, choices, submitButton, tabs } from "../buttons.js";
import { h, icon } from "../dom.js";
import { FormView } from "../forms/view.js";
import { labelled, say } from "../i18n.js";
import { sentenceOf } from "../problems.js";
import { holds } from "../words.js";
import { openDialog } from "./dialog.js";

/** @param {{files: (files: File[]) => void, resource: (resource: Resource) => void}} add */
export function openAttach(add) {
  return openDialog("attach.title", {}, (close) => {
    const take = (/** @type {Resource} */ resource) => {
      close();
      add.resource(resource);
    };
    const picker = (/** @type {import("../dom.js").Attributes} */ kind) => {
      const input = h("input", { type: "file", hidden: true, ...kind });
      input.addEventListener("change", () => {
        close();
        add.files([...(input.files ?? [])]);
      });
      return input;
    };
    const files = picker({ multiple: true });
    // A phone opens its camera for this one; where the page has no camera of its own it works as well.
    const camera = picker({ accept: "image/*", capture: "environment" });
    const offers = choices(
      button("attach.choose", () => files.click(), { class: "primary", autofocus: true }),
      matchMedia("(pointer: coarse)").matches && button("attach.camera", () => camera.click()),
    );
    const form = h("div", { class: "form" }, h("p", { class: "muted" }, say("attach.help")), offers, files, camera);
    /** @type {Record<string, HTMLElement>} */
    const made = { file: form };
    const list = h("div", { class: "tabs", role: "tablist", ...labelled("attach.title") });
    const pane = h("div", { role: "tabpanel", id: "attach-pane" });
    const show = (/** @type {string} */ name) => {
      made[name] ??= listing(() => resourceRows(take), "attach.none");
      pane.replaceChildren(made[name]);
      mark(name);
    };
    const mark = tabs(list, { file: "attach.file", resource: "attach.resource" }, pane, show);
    show("file");
    return [list, pane];
  });
}

/** @param {(resource: Resource) => void} take */
async function resourceRows(take) {
  const { resources, templates } = await api.get("/v1/resources");
  const rows = resources.map((/** @type {any} */ { server, uri, name, description }) =>
    row("clip", name || uri, [server, uri], description, () => take({ server, uri, name: name || uri })),
  );
  return [...rows, ...templates.map((/** @type {any} */ template) => templateRow(template, take))];
}

/**
 * @returns {Promise<{name: string, arguments: Record<string, string>} | null>}
 */
export async function chosenPrompt() {
  const answer = await openDialog("prompts.title", {}, (close) => {
    const body = h("div");
    const take = (/** @type {any} */ prompt, /** @type {Record<string, unknown>} */ given) =>
      close(JSON.stringify({ name: `${prompt.server}:${prompt.name}`, arguments: given }));
    const choose = (/** @type {any} */ prompt) =>
      prompt.arguments?.length ? body.replaceChildren(argumentsForm(prompt, take)) : take(prompt, {});
    body.append(
      listing(async () => {
        const { prompts } = await api.get("/v1/prompts");
        return prompts.map((/** @type {any} */ prompt) =>
          row("prompt", prompt.name, [prompt.server], prompt.description, () => choose(prompt)),
        );
      }, "prompts.none"),
    );
    return [body];
  });
  return answer ? JSON.parse(answer) : null;
}

/**
 * A list that is fetched, with a field that narrows it.
 *
 * @param {() => Promise<HTMLElement[]>} fetched
 * @param {string} none the text of an empty list
 */
function listing(fetched, none) {
  const list = h("ul", { class: "offers" });
  const note = h("p", { class: "muted", role: "status" }, say("loading"));
  const search = h("input", { type: "search", id: "offer-search", autocomplete: "off" });
  const field = h("div", { class: "field" }, h("label", { for: search.id }, say("search")), search);
  const narrow = () => {
    for (const item of list.querySelectorAll("li")) item.hidden = !holds(item.textContent ?? "", search.value);
  };
  search.addEventListener("input", narrow);
  fetched().then(
    (rows) => {
      list.append(...rows);
      // Its reader may have typed meanwhile.
      narrow();
      note.replaceChildren(rows.length === 0 ? say(none) : "");
    },
    (error) => note.replaceChildren(sentenceOf(error)),
  );
  return h("div", {}, field, note, list);
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
