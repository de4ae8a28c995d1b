/** Words as they are compared when something is searched: wide letters and capitals make no difference. */

/**
 * @param {string} text
 * @param {string} words
 * @returns {boolean}
 */
export function holds(text, words) {
  return plain(text).includes(plain(words));
}

/**
 * A text in pieces, of which every second one is one of the words that were searched.
 *
 * @param {string} text
 * @param {string} words
 * @returns {string[]}
 */
export function pieces(text, words) {
  const searched = plain(words).split(/\s+/).filter(Boolean);
  if (searched.length === 0) return [text];
  // The longest first: it may begin as a shorter one does.
  const longest = searched.sort((one, other) => other.length - one.length);
  const pattern = new RegExp(longest.map((word) => word.replace(/[\\^$.*+?()[\]{}|]/g, "\\$&")).join("|"), "g");
  // Wide letters and capitals may take another number of letters than what they are compared as.
  const letters = [...text];
  const ends = [0];
  for (const letter of letters) ends.push((ends.at(-1) ?? 0) + plain(letter).length);
  const whole = letters.map(plain).join("");
  const found = [];
  let from = 0;
  for (const { index, 0: word } of whole.matchAll(pattern)) {
    const start = ends.findLastIndex((end) => end <= index);
    const stop = ends.findIndex((end) => end >= index + word.length);
    if (start < from) continue;
    found.push(letters.slice(from, start).join(""), letters.slice(start, stop).join(""));
    from = stop;
  }
  return [...found, letters.slice(from).join("")];
}

/** @param {string} text */
function plain(text) {
  return text.normalize("NFKC").toLowerCase();
}
