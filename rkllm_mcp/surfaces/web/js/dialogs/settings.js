/**
 * The options of all questions of one conversation: a system text, sampling, thinking, and the tools.
 *
 * @typedef {{settings: Record<string, any>, system: string | null, isTemporary?: boolean}} Settings a temporary conversation
 *   is not stored, and nothing is remembered or recalled in it
 */
import { api } from "../access.js";
import { choices, submitButton } from "../buttons.js";
import { FormView } from "../forms/view.js";
import { t } from "../i18n.js";
import { nameOf, switchedOn } from "../tools.js";
import { openDialog } from "./dialog.js";

// Every option with its least value, its greatest one, and the kind of number; made of rkllm_mcp/sampling.py.
// <!-- sampling -->
/** @type {[string, number, number, string][]} */
const SAMPLING = [
  ["temperature", 0.0, 2.0, "number"],
  ["top_k", 1, 1000, "integer"],
  ["top_p", 0.0, 1.0, "number"],
  ["repeat_penalty", 0.1, 10.0, "number"],
  ["frequency_penalty", -2.0, 2.0, "number"],
  ["presence_penalty", -2.0, 2.0, "number"],
];
// <!-- end of sampling -->

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
  const sampling = SAMPLING.map(([name, minimum, maximum, type]) => {
    const title = t(`conversation.${name}`);
    return [name, { type, minimum, maximum, title, default: settings[name] }];
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
      ...Object.fromEntries(sampling),
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
