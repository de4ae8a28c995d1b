/**
 * The options of all questions of one conversation: a system text, sampling, thinking, and the tools.
 *
 * @typedef {{settings: Record<string, any>, system: string | null}} Settings
 */
import { api } from "../access.js";
import { choices, submitButton } from "../buttons.js";
import { FormView } from "../forms/view.js";
import { t } from "../i18n.js";
import { nameOf, switchedOn } from "../tools.js";
import { openDialog } from "./dialog.js";

// More are switched under Servers.
const MOST_TOOLS = 60;

/**
 * @param {Settings} before
 * @returns {Promise<Settings | null>} null when nothing is to be changed
 */
export async function chosenSettings(before) {
  const tools = switchedOn((await api.get("/v1/tools")).tools);
  const names = tools.map(nameOf);
  const { settings } = before;
  const number = (/** @type {string} */ name, /** @type {number} */ maximum) => ({
    type: "number",
    minimum: 0,
    maximum,
    title: t(`conversation.${name}`),
    description: t(`conversation.${name}_help`),
    default: settings[name],
  });
  const thinking = ["as_set", "on", "off"];
  const schema = {
    properties: {
      system: {
        type: "string",
        title: t("conversation.system"),
        description: t("conversation.system_help"),
        maxLength: 100_000,
        default: before.system ?? undefined,
      },
      temperature: number("temperature", 2),
      top_p: number("top_p", 1),
      thinking: {
        enum: thinking,
        enumNames: thinking.map((name) => t(`conversation.thinking.${name}`)),
        title: t("conversation.thinking"),
        default: settings["thinking"] === undefined ? "as_set" : settings["thinking"] ? "on" : "off",
      },
      ...(names.length > 0 &&
        names.length <= MOST_TOOLS && {
          tools: {
            type: "array",
            items: { enum: names, enumNames: tools.map(({ server, name }) => (server ? `${server} / ${name}` : name)) },
            title: t("conversation.tools"),
            default: settings["tools"] ?? names,
          },
        }),
    },
    required: ["thinking", "tools"],
  };
  /** @type {Settings | null} */
  let chosen = null;
  await openDialog("conversations.settings", {}, (close) => {
    const form = new FormView(schema, (given) => {
      const { system = "", thinking: think, tools: allowed, ...rest } = /** @type {Record<string, any>} */ (given);
      const isAll = !allowed || allowed.length === names.length;
      chosen = {
        system,
        settings: {
          ...rest,
          ...(think !== "as_set" && { thinking: think === "on" }),
          ...(isAll ? settings["tools"] && !allowed && { tools: settings["tools"] } : { tools: allowed }),
        },
      };
      close();
    });
    form.node.append(choices(submitButton("save")));
    return [form.node];
  });
  return chosen;
}
