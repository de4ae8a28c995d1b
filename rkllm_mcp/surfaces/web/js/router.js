/** The address of the page: `#/c/ID` is a conversation, anything else a new one. */

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
 * @param {string} id empty for a new conversation
 * @returns {string}
 */
export function addressOf(id) {
  return id ? `#/c/${encodeURIComponent(id)}` : "#/";
}
