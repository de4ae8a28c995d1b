/** Tools as the board lists them. */

import { h } from "./dom.js";

/** @type {Map<string, string>} by server and name */
const titles = new Map();

/** @param {any[]} tools as the board lists them; the page shows their titles from now on */
export function showTitles(tools) {
  for (const { server, name, title } of tools) if (title) titles.set(`${server}/${name}`, title);
  for (const node of document.querySelectorAll("[data-tool]"))
    node.textContent = titles.get(node.getAttribute("data-tool") ?? "") ?? node.textContent;
}

/** Whether the titles are known. */
export function hasTitles() {
  return titles.size > 0;
}

/**
 * A tool by its title, or by its name without one.
 *
 * @param {string} server
 * @param {string} name
 */
export function titleView(server, name) {
  const key = `${server}/${name}`;
  return h("strong", { "data-tool": key, title: server ? `${server} / ${name}` : name }, titles.get(key) ?? name);
}

/**
 * @param {any[]} tools
 * @returns {any[]} those that are switched on
 */
export function switchedOn(tools) {
  return tools.filter((tool) => tool.enabled !== false);
}

/**
 * @param {any} tool
 * @returns {string} the name that no other tool has
 */
export function nameOf(tool) {
  return String(tool.qualified_name || tool.name);
}
