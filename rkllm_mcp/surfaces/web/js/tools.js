/** Tools as the board lists them. */

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
