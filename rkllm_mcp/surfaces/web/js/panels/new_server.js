/**
 * Servers to add: those of the gallery and others by address. Each is tried first; where the key may not add servers, the
 * command for the terminal replaces it.
 *
 * @typedef {(name: string) => Promise<void>} Added called when a server was added
 */
import { api } from "../access.js";
import { Refusal } from "../api.js";
import { button, choices, submitButton, typed } from "../buttons.js";
import { announce } from "../chat/announcer.js";
import { fill, h } from "../dom.js";
import { FormView } from "../forms/view.js";
import { language, say, t } from "../i18n.js";
import { sentenceOf } from "../problems.js";
import { STARTING_MS, testView } from "./server_actions.js";

/**
 * @param {Added} added
 * @param {{add: string, name: string}} [link] what an install link names: a server of the gallery or of the registry, or an address;
 *   it fills in a form and does nothing else
 */
export async function serversToAdd(added, link = { add: "", name: "" }) {
  const { servers, missing, can_add: canAdd } = await api.get("/v1/servers/gallery");
  const place = h("div");
  const take = (/** @type {import("./registry.js").Filled} */ filled, isFocused = true) => {
    fill(place, byAddress(canAdd, added, filled));
    if (!isFocused) return;
    place.scrollIntoView({ block: "nearest" });
    /** @type {HTMLElement | null} */ (place.querySelector("input, button"))?.focus();
  };
  const isAddress = /^https?:\/\//.test(link.add);
  take({ name: link.name, url: isAddress ? link.add : "" }, false);
  const named = servers.find((/** @type {any} */ server) => server.name === link.add);
  const shown = named ? [named] : isAddress ? [] : servers;
  const { registrySearch } = await import("./registry.js");
  const notice = h("p", { class: "notice", role: "status" }, say("servers.linked", { name: link.add }));
  const search = h("section", { class: "server" }, h("h3", {}, say("registry.title")), registrySearch(take, named || isAddress ? "" : link.add));
  return [
    link.add && notice,
    h("p", { class: "muted small" }, say(canAdd ? "servers.trust" : "servers.add_help")),
    ...missing.map((/** @type {any} */ { name, command }) =>
      h("div", { class: "notice" }, h("p", {}, say("servers.missing", { name, purpose: t(`servers.program.${name}`) })), typed(command)),
    ),
    isAddress && place,
    ...shown.map((/** @type {any} */ server) => offered(server, canAdd, added)),
    !isAddress && !named && search,
    !isAddress && place,
    (isAddress || named) && search,
  ];
}

/**
 * @param {any} server
 * @param {boolean} canAdd
 * @param {Added} added
 */
function offered(server, canAdd, added) {
  const reaches = server.reaches.length > 0 ? server.reaches : ["nothing"];
  const command = `rkllm-mcp servers install ${server.name}${server.needs_folder ? " --folder PATH" : ""}`;
  const adding = () => {
    const folder = { type: "string", title: t("servers.folder"), maxLength: 200 };
    const without = { type: "boolean", title: t("servers.without_sandbox") };
    const isBare = server.missing.includes("bubblewrap");
    const properties = { ...(server.needs_folder && { folder }), ...(isBare && { without_sandbox: without }) };
    const schema = { properties, required: server.needs_folder ? ["folder"] : [] };
    return trial(schema, (given) => ({ gallery: server.name, command: server.command, ...given }), added);
  };
  return h(
    "section",
    { class: "server" },
    h("div", { class: "names" }, h("h3", {}, server.title), h("span", { class: "muted" }, server.version)),
    h("p", {}, language() === "ja" ? server.description_ja : server.description),
    h("p", { class: "small" }, say("servers.may"), " ", reaches.flatMap((/** @type {string} */ name) => [say(`servers.may.${name}`), " "])),
    h("p", { class: "small" }, say("servers.runs")),
    h("pre", { tabindex: 0 }, server.command.join(" ")),
    !server.installed && server.missing.length > 0 && h("p", { class: "small caution" }, say("servers.needs", { names: server.missing.join(", ") })),
    server.installed && h("p", { class: "muted small" }, say("servers.installed")),
    !server.installed && (canAdd ? adding() : typed(command)),
  );
}

/**
 * @param {boolean} canAdd
 * @param {Added} added
 * @param {import("./registry.js").Filled} filled
 */
function byAddress(canAdd, added, { name, url, wants }) {
  const schema = {
    properties: {
      name: { type: "string", title: t("servers.name"), maxLength: 64, default: name || undefined },
      url: {
        type: "string",
        format: "uri",
        title: t("servers.url"),
        description: t("servers.url_help"),
        // A longer one, of a link, is not cut.
        maxLength: Math.max(200, url.length),
        default: url || undefined,
      },
      key: { type: "string", format: "password", title: t("key.label"), description: t("servers.key_help"), maxLength: 200 },
      headers: { type: "string", title: t("servers.headers"), description: t("servers.headers_help"), maxLength: 8000 },
      oauth: { type: "boolean", title: t("servers.oauth") },
    },
    required: ["name", "url"],
  };
  return h(
    "section",
    { class: "server" },
    h("h3", {}, say("servers.by_address")),
    wants && h("p", { class: "muted small" }, say("servers.wants", { headers: wants })),
    canAdd ? trial(schema, entryOf, added) : typed(`rkllm-mcp servers add ${shellWord(name || "NAME")} --url ${shellWord(url || "URL")}`),
  );
}

/**
 * A word of a command: what a link names may be anything.
 *
 * @param {string} text
 */
function shellWord(text) {
  return /^[\w.:/@%+=,-]+$/.test(text) ? text : `'${text.replaceAll("'", `'\\''`)}'`;
}

/**
 * The body for a server that is added by its address: its key is one of its headers.
 *
 * @param {Record<string, any>} given
 */
function entryOf({ name, url, key, headers = "", oauth }) {
  const lines = headers.split("\n").filter((/** @type {string} */ line) => line.trim());
  const pairs = lines.map((/** @type {string} */ line) => {
    const [header = "", ...rest] = line.split(":");
    return [header.trim(), rest.join(":").trim()];
  });
  if (key) pairs.push(["Authorization", `Bearer ${key.trim()}`]);
  return { name, url, headers: Object.fromEntries(pairs), oauth };
}

/**
 * A form that tries a server, and adds it as it was tried.
 *
 * @param {any} schema of the form
 * @param {(given: Record<string, any>) => object} entry the body to send
 * @param {Added} added
 */
function trial(schema, entry, added) {
  const outcome = h("div", { class: "outcome", role: "status" });
  const send = async (/** @type {string} */ path, /** @type {object} */ server, /** @type {string} */ phrase) => {
    fill(outcome, h("p", {}, say(phrase)), h("progress", { "aria-label": t(phrase) }));
    try {
      return await api.post(path, server, STARTING_MS);
    } catch (error) {
      const field = error instanceof Refusal ? (error.param.split(".")[0] ?? "") : "";
      const isOwn = language() !== "en" && ["folder", "name", "url"].includes(field);
      const isSaid = field !== "" && form.complain(field, isOwn ? t(`servers.wrong.${field}`) : sentenceOf(error));
      fill(outcome, !isSaid && h("p", { class: "error" }, sentenceOf(error)));
      return null;
    }
  };
  const add = async (/** @type {object} */ server) => {
    const made = await send("/v1/servers", server, "servers.adding");
    if (!made) return;
    const phrase = made.is_in_force ? "servers.added" : "servers.added_later";
    announce(t(phrase, { name: made.name }));
    fill(outcome, h("p", {}, say(phrase, { name: made.name })), h("p", { class: "muted" }, made.problem));
    await added(made.is_in_force ? made.name : "");
  };
  const form = new FormView(schema, async (given) => {
    const server = entry(given);
    const tried = await send("/v1/servers:try", server, "servers.trying");
    if (!tried) return;
    // A login needs a server that is there.
    const canBeAdded = tried.state === "ready" || tried.failure === "login";
    const adding = button("servers.add_it", () => add(server), { class: "primary" });
    fill(outcome, testView(tried), canBeAdded && choices(adding));
  });
  form.node.append(choices(submitButton("servers.try", {})), outcome);
  return form.node;
}
