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
 * A text in pieces, of which every second one is what was searched.
 *
 * @param {string} text
 * @param {string} words
 * @returns {string[]}
 */
export function pieces(text, words) {
  const wanted = plain(words);
  if (!wanted) return [text];
  // Wide letters and capitals may take another number of letters than what they are compared as.
  const letters = [...text];
  const ends = [0];
  for (const letter of letters) ends.push((ends.at(-1) ?? 0) + plain(letter).length);
  const whole = letters.map(plain).join("");
  const found = [];
  let from = 0;
  for (let at = whole.indexOf(wanted); at >= 0; at = whole.indexOf(wanted, at + wanted.length)) {
    const start = ends.findLastIndex((end) => end <= at);
    const stop = ends.findIndex((end) => end >= at + wanted.length);
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
