/**
 * What can be done with one server: a test, and a login with a browser. The login goes on while the panel is closed.
 *
 * @typedef {{state: string, failure: string, problem: string, seconds: number, tokens: number, output: string[],
 *   tools: any[]}} Tested
 * @typedef {{state: "starting" | "waiting" | "ready" | "failed", address: string, problem: string}} Login
 */
import { api } from "../access.js";
import { button, choices, submitButton } from "../buttons.js";
import { webAddress } from "../chat/questions.js";
import { fill, h } from "../dom.js";
import { FormView } from "../forms/view.js";
import { figure, say, t } from "../i18n.js";
import { sentenceOf } from "../problems.js";

// A first start may download the server.
export const STARTING_MS = 180_000;

export class ServerActions {
  #outcome = h("div", { class: "outcome", role: "status" });
  #login;
  #path;
  #changed;
  // Of the login that is shown; an earlier one is over.
  #number = 0;

  /**
   * @param {string} name
   * @param {() => Promise<void>} changed called when the server's state may have changed
   */
  constructor(name, changed) {
    this.#path = `/v1/servers/${encodeURIComponent(name)}`;
    this.#changed = changed;
    const marked = (/** @type {string} */ action) => ({ "data-control": `${action} ${name}` });
    this.#login = button("server.log_in", () => this.#logIn(), { class: "primary", ...marked("login") });
    const test = button("server.test", () => this.test(), marked("test"));
    this.node = h("div", { class: "server-actions" }, choices(this.#login, test), this.#outcome);
  }

  /** @param {any} server as the service lists it */
  show(server) {
    this.#login.hidden = !server.can_log_in;
    return this.node;
  }

  async test() {
    this.#number += 1;
    fill(this.#outcome, say("server.testing"));
    try {
      const tested = await api.post(`${this.#path}:test`, {}, STARTING_MS);
      fill(this.#outcome, testView(tested));
      await this.#changed();
    } catch (error) {
      fill(this.#outcome, h("p", { class: "error" }, sentenceOf(error)));
    }
  }

  async #logIn() {
    this.#number += 1;
    const number = this.#number;
    fill(this.#outcome, say("server.login.starting"));
    try {
      let login = await api.post(`${this.#path}:login`);
      let shown = "";
      while (number === this.#number) {
        if (login.state !== shown) this.#show(login);
        shown = login.state;
        if (shown === "ready" || shown === "failed") break;
        login = await api.get(`${this.#path}:login`, { known: shown });
      }
      if (shown === "ready") await this.#changed();
    } catch (error) {
      if (number === this.#number) fill(this.#outcome, h("p", { class: "error" }, sentenceOf(error)));
    }
  }

  /** @param {Login} login */
  #show(login) {
    const target = webAddress(login.address);
    if (login.state !== "waiting" || !target) {
      const isFailed = login.state === "failed";
      const said = h("p", { class: isFailed ? "error" : "" }, say(`server.login.${login.state}`));
      fill(this.#outcome, said, isFailed && h("p", { class: "muted" }, login.problem));
      return;
    }
    const link = h(
      "a",
      { href: target.href, target: "_blank", rel: "noopener noreferrer nofollow", class: "button primary" },
      say("question.open"),
    );
    fill(
      this.#outcome,
      h("p", {}, say("server.login.waiting"), " ", h("strong", { class: "host" }, target.host)),
      choices(link),
      this.#elsewhere(),
    );
  }

  /** The end of a login in a browser that is not on the board: it cannot open the page that it is sent to. */
  #elsewhere() {
    const schema = {
      properties: { address: { type: "string", title: t("server.login.paste"), format: "uri", maxLength: 8000 } },
      required: ["address"],
    };
    const form = new FormView(schema, async ({ address }) => {
      try {
        await api.post(`${this.#path}:login`, { address });
      } catch (error) {
        form.complain("address", sentenceOf(error));
      }
    });
    const input = form.node.querySelector("input, textarea");
    form.node.append(choices(submitButton("server.login.finish", {})));
    if (input) input.setAttribute("data-control", `address ${this.#path}`);
    const isHere = /^(localhost|127\.[\d.]+|\[::1\])$/.test(location.hostname);
    const label = h("summary", {}, say("server.login.elsewhere"));
    return h("details", { open: !isHere }, label, h("p", { class: "muted" }, say("server.login.help")), form.node);
  }
}

/**
 * What a test came to.
 *
 * @param {Tested} tested
 */
export function testView({ state, failure, problem, seconds, tokens, output, tools }) {
  if (state === "ready") {
    const said = { count: tools.length, tokens, seconds: figure(seconds, seconds < 1 ? 2 : 1) };
    const names = tools.map(({ name }) => h("li", {}, h("code", {}, name)));
    return h("div", {}, h("p", {}, say("server.works", said)), h("ul", { class: "names" }, names));
  }
  return h(
    "div",
    {},
    h("p", { class: "error" }, say(failure ? `server.failure.${failure}` : "server.fails")),
    h("p", { class: "muted address" }, problem),
    output.length > 0 && h("pre", { tabindex: 0 }, output.slice(-5).join("\n")),
  );
}
