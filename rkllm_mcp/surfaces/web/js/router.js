/** The address of the page: `#/c/ID` is a conversation, `#/link/CODE` links a device, anything else is a new conversation. */

/**
 * @param {string} hash of the address, `#` included
 * @returns {string} the conversation's id; empty for a new one
 */
export function conversationOf(hash) {
  const found = /^#\/c\/([^/?]+)$/.exec(hash);
  if (!found) return "";
  try {
    return decodeURIComponent(found[1] ?? "");
  } catch {
    return "";
  }
}

/**
 * @param {string} hash of the address, `#` included
 * @returns {string} the code that is exchanged for a key of this device; empty without one
 */
export function codeOf(hash) {
  return /^#\/link\/([\w-]+)$/.exec(hash)?.[1] ?? "";
}

/**
 * What an install link asks for, `#add-server=…`: a name of the gallery or of the registry, or an address.
 *
 * @param {string} hash of the address, `#` included
 * @returns {string} the query of the panel that adds servers; empty without one
 */
export function serverOf(hash) {
  return /^#add-server=./.test(hash) ? hash.slice(1) : "";
}

/**
 * @param {string} id empty for a new conversation
 * @returns {string}
 */
export function addressOf(id) {
  return id ? `#/c/${encodeURIComponent(id)}` : "#/";
}
