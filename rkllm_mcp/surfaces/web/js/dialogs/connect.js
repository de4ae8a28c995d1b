/**
 * How another program asks the board: its address, its own key, and what to write where; and the keys that were
 * given away, to revoke them.
 *
 * @typedef {{id: string, title: string, where: {en: string, ja: string}, language: string, text: string[]}} Snippet
 */
import { api } from "../access.js";
import { button, choices, copyButton, typed } from "../buttons.js";
import { fill, h, tell } from "../dom.js";
import { language, moment, say, t } from "../i18n.js";
import { sentenceOf } from "../problems.js";
import { openDialog } from "./dialog.js";

const SNIPPETS = new URL("../../snippets.json", import.meta.url);

/**
 * @param {{model: string, context_tokens: number, may_delete: boolean}} me
 * @returns {Promise<unknown>}
 */
export async function openConnect(me) {
  /** @type {Snippet[]} */
  const snippets = await (await fetch(SNIPPETS)).json();
  const state = { key: "", address: location.origin };
  return openDialog("connect.title", {}, () => {
    const list = h(
      "select",
      { id: "connect-program", autofocus: true, change: () => begin() },
      snippets.map(({ id, title }) => h("option", { value: id }, title)),
    );
    const snippet = h("div", { class: "connect" });
    const note = h("p", { class: "muted", role: "status" }, say("connect.no_key"));
    const keys = h("ul", { class: "plain" });
    const chosen = () => /** @type {Snippet} */ (snippets.find(({ id }) => id === list.value) ?? snippets[0]);

    const show = () => {
      const { title, where, text, language: isCode } = chosen();
      const filled = (/** @type {string} */ words) =>
        words
          .replaceAll("<address>", state.address)
          .replaceAll("<key>", state.key || t("connect.your_key"))
          .replaceAll("<model>", me.model || "default")
          .replaceAll("<context>", String(me.context_tokens));
      const content = filled(text.join("\n"));
      fill(
        snippet,
        h("p", {}, filled(where[language()])),
        h("pre", { tabindex: 0, role: "group", "aria-label": title, class: !isCode && "filled" }, h("code", {}, content)),
        copyButton(() => content),
      );
    };

    /** Each program gets its own key. */
    const begin = () => {
      state.key = "";
      tell(note, say("connect.no_key"));
      show();
    };

    const make = async () => {
      try {
        state.key = (await api.post("/v1/devices", { name: chosen().title })).key;
        tell(note, say("connect.shown_once"));
        show();
        await listKeys();
      } catch (error) {
        tell(note, sentenceOf(error));
      }
    };

    const listKeys = async () => {
      try {
        const { devices, address } = await api.get("/v1/devices");
        keys.replaceChildren(...devices.map(rowOf));
        if (isHere && address && address !== state.address) {
          state.address = address;
          fill(place, typed(address));
          fill(phone, choices(button("connect.qr", () => void draw())));
          show();
        }
      } catch {
        // Only a key of the owner sees and makes keys; the snippets are of use without them.
        keys.replaceChildren();
      }
    };

    /** @param {{id: string, name: string, linked: number, allow: string[]}} device */
    const rowOf = (device) => {
      const revoke = async () => {
        try {
          await api.delete(`/v1/devices/${encodeURIComponent(device.id)}`);
          await listKeys();
        } catch (error) {
          tell(note, sentenceOf(error));
        }
      };
      const since = h("span", { class: "muted small" }, say("connect.linked", { when: moment(device.linked) }));
      const end = me.may_delete && button("connect.revoke", revoke);
      return h("li", { class: "server-head" }, h("span", {}, device.name, " ", since), end);
    };

    const qr = h("div", { class: "qr", role: "status" });
    const place = h("div", {}, typed(location.origin));
    const phone = h("div");
    const isHere = /^(localhost|127\.[\d.]+|\[::1\])$/.test(location.hostname);
    const draw = async () => {
      try {
        const { svg, is_linking: isLinking } = await api.post("/v1/devices:qr", { address: state.address });
        const picture = h("img", { alt: t("connect.qr_alt"), width: 220, height: 220 });
        const address = URL.createObjectURL(new Blob([svg], { type: "image/svg+xml" }));
        picture.addEventListener("load", () => URL.revokeObjectURL(address));
        picture.src = address;
        fill(qr, picture, h("p", { class: "muted small" }, say(isLinking ? "connect.qr_links" : "connect.qr_address")));
      } catch (error) {
        fill(qr, h("p", { class: "error" }, sentenceOf(error)));
      }
    };

    // A phone does not reach an address of the board itself.
    fill(phone, isHere ? h("p", { class: "muted small" }, say("connect.qr_here")) : choices(button("connect.qr", () => void draw())));
    show();
    void listKeys();
    return [
      h("p", {}, say("connect.address")),
      place,
      phone,
      qr,
      h("div", { class: "field" }, h("label", { for: list.id }, say("connect.program")), list),
      snippet,
      note,
      choices(button("connect.make_key", () => void make(), { class: "primary" })),
      h("h3", {}, say("connect.keys")),
      keys,
    ];
  });
}
