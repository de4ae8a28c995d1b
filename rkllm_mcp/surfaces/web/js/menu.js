/**
 * A short list of actions, next to the button that opens it; on a phone a sheet at the lower edge. The browser closes
 * it on Escape and on a tap outside it.
 *
 * @typedef {{phrase: string, values?: import("./i18n.js").Values, act: () => void, isDanger?: boolean, isOn?: boolean,
 *   note?: string}} Entry
 */
import { steppedTo } from "./buttons.js";
import { h } from "./dom.js";
import { say } from "./i18n.js";

const GAP_PX = 4;

/**
 * @param {HTMLElement} from
 * @param {Entry[]} entries
 */
export function openMenu(from, entries) {
  const node = h("div", { class: "popover", role: "menu", popover: "auto" });
  const items = entries.map(({ phrase, values, act, isDanger, isOn, note }) =>
    h(
      "button",
      {
        type: "button",
        role: isOn === undefined ? "menuitem" : "menuitemradio",
        "aria-checked": isOn,
        class: isDanger ? "danger" : "",
        click: () => {
          node.hidePopover();
          act();
        },
      },
      h("span", {}, say(phrase, values)),
      note && h("span", { class: "muted small" }, note),
    ),
  );
  node.append(...items);
  node.addEventListener("toggle", (event) => {
    if (/** @type {ToggleEvent} */ (event).newState === "open") return;
    if (node.contains(document.activeElement) || document.activeElement === document.body) from.focus();
    node.remove();
  });
  node.addEventListener("keydown", (event) => {
    steppedTo(items, event, { ArrowDown: 1, ArrowUp: -1 });
  });
  (from.closest("main, nav, aside") ?? document.body).append(node);
  node.showPopover();
  const at = from.getBoundingClientRect();
  const { width, height } = node.getBoundingClientRect();
  const below = at.bottom + GAP_PX + height < innerHeight;
  node.style.setProperty("--x", `${Math.max(GAP_PX, Math.min(at.left, innerWidth - width - GAP_PX))}px`);
  node.style.setProperty("--y", `${below ? at.bottom + GAP_PX : Math.max(GAP_PX, at.top - height - GAP_PX)}px`);
  items[0]?.focus();
}
