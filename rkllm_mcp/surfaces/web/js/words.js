/** Words as they are compared when something is searched: wide letters and capitals make no difference. */

/**
 * @param {string} text
 * @param {string} words
 * @returns {boolean}
 */
export function holds(text, words) {
  return plain(text).includes(plain(words));
}

/** @param {string} text */
function plain(text) {
  return text.normalize("NFKC").toLowerCase();
}
