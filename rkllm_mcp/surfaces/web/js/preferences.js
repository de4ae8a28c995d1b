/**
 * What this browser remembers: the wishes of its user for good, which are the board's too, the key until the window is closed or it is forgotten. A browser that
 * lets nothing be stored forgets both at the next visit and works otherwise.
 */

const PREFIX = "rkllm-mcp.";

/**
 * @param {"language" | "theme" | "size" | "notices" | "model" | "schedules_seen" | "voice" | "aloud" | "converse"} name
 * @returns {string} empty when nothing was chosen
 */
export function preference(name) {
  return attempt(() => localStorage.getItem(PREFIX + name)) ?? "";
}

/**
 * @param {"language" | "theme" | "size" | "notices" | "model" | "schedules_seen" | "voice" | "aloud" | "converse"} name
 * @param {string} value empty goes back to what the browser says
 */
export function prefer(name, value) {
  put("localStorage", name, value);
}

/**
 * Take over what the person has chosen in another browser.
 *
 * @param {Record<string, string>} [chosen] as the board has stored it
 * @returns {boolean} whether something is different now
 */
export function takeOver(chosen = {}) {
  const names = /** @type {("language" | "theme" | "size" | "model")[]} */ (["language", "theme", "size", "model"]);
  const different = names.filter((name) => chosen[name] !== undefined && chosen[name] !== preference(name));
  for (const name of different) prefer(name, chosen[name] ?? "");
  return different.length > 0;
}

/**
 * The draft of this window, which survives a reload.
 *
 * @param {string} name `draft`, `waiting` (for the board), or `queued.` and the id of a conversation
 * @returns {any} undefined or null without a draft
 */
export function typed(name) {
  return attempt(() => JSON.parse(sessionStorage.getItem(PREFIX + name) ?? "null"));
}

/**
 * @param {string} name
 * @param {string | object[]} value an empty one is forgotten
 * @returns {boolean} whether the browser had room for it; otherwise nothing is left under this name
 */
export function keepTyped(name, value) {
  if (value.length > 0 && put("sessionStorage", name, JSON.stringify(value))) return true;
  put("sessionStorage", name, "");
  return value.length === 0;
}

/** The key for the board, stored in this window only, or on this device if the user chooses so. */
export class Keyring {
  key = attempt(() => sessionStorage.getItem(`${PREFIX}key`) ?? localStorage.getItem(`${PREFIX}key`)) ?? "";

  /**
   * @param {string} key empty forgets it
   * @param {boolean} [isLasting] also for other windows of this browser, until it is forgotten
   */
  keep(key, isLasting = false) {
    this.key = key;
    put("sessionStorage", "key", key);
    put("localStorage", "key", isLasting ? key : "");
  }
}

/**
 * @param {"localStorage" | "sessionStorage"} storage
 * @param {string} name
 * @param {string} value an empty one is forgotten
 */
function put(storage, name, value) {
  const isPut = attempt(() => {
    if (value) window[storage].setItem(PREFIX + name, value);
    else window[storage].removeItem(PREFIX + name);
    return true;
  });
  return isPut ?? false;
}

/**
 * @template T
 * @param {() => T} use
 * @returns {T | undefined}
 */
function attempt(use) {
  try {
    return use();
  } catch {
    return undefined;
  }
}
