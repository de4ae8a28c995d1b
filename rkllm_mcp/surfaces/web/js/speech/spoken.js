/**
 * What is spoken of an answer: its sentences, without code, tables, formulas and addresses. The board cuts texts in the
 * same way (rkllm_mcp/speech/sentences.py); both have the same test cases.
 */

// Sentences shorter than this go with the next one: a voice begins anew with each.
const LEAST_CHARS = 12;
// Longer ones are cut at a comma or a space, so that the first sound does not wait.
const MOST_CHARS = 240;
const FENCE = /^[ \t]*(```|~~~)/;
const TABLE_LINE = /^[ \t]*\|.*\|[ \t]*$/;
const RULE = /^[ \t]*(?:-{3,}|\*{3,}|_{3,})[ \t]*$/;
const LINE_MARK = /^[ \t]*(?:#{1,6}[ \t]+|>[ \t]?|[-*+][ \t]+(?:\[[ xX]\][ \t]+)?|[・•][ \t]*|[0-9]{1,3}[.)][ \t]+)/;
const MATHS = /\$\$.*?\$\$|\\\[.*?\\\]|\\\([^\n]*?\\\)/gs;
const PICTURE = /!\[[^\]]*\]\([^)]*\)/g;
const LINK = /\[([^\]]+)\](?:\([^)]*\)|\[[^\]]*\])/g;
const NOTE = /[ \t]?\[\^?[0-9]{1,3}\]/g;
// Of ASCII, since Japanese may follow at once; a mark at its end is that of the sentence.
const WEB = String.raw`(?:https?:\/\/|\bwww\.)[!-;=?-~]*[A-Za-z0-9\/#%&=+~_\-]`;
const ADDRESS = new RegExp(String.raw`[ \t]*(?:<${WEB}>|\(${WEB}\)|（${WEB}）|${WEB})`, "g");
const LINE_BREAK = /<br[ \t]*\/?>/gi;
const TAG = /<\/?[A-Za-z][^>\n]*>/g;
// Not the signs of 5*3 and 2**10.
const EMPHASIS = /(?<![0-9*])(\*\*|__|\*|~~|`)(\S|\S.*?\S)\1/gs;
const SYMBOLS = String.raw`\u20e3\u231a\u231b\u23e9-\u23fa\u2600-\u27bf\u2b05-\u2b07\u2b1b\u2b1c\u2b50\u2b55\ufe0f\u200d\u{1f000}-\u{1faff}\u{e0020}-\u{e007f}`;
// It may stand for the mark at the end of a sentence; between words it is a space.
const EMOJI_BEFORE_MARK = new RegExp(String.raw`[ \t]*[${SYMBOLS}]+(?=[ \t]*(?:[。、！？.,!?）)」]|$))`, "gu");
const EMOJI = new RegExp(`[${SYMBOLS}]+`, "gu");
const BRACKETS = /\([^()]*\)/g;
// The end of a sentence. Japanese marks end it at once, others before a space and no small letter; a quotation that ends
// goes on with hiragana: 「はい。」と言った。 Half of a pair is a letter that is not complete yet.
const CLOSING = String.raw`」』）”’")`;
const END = new RegExp(
  String.raw`(?:[!?]*[。！？｡][。！？｡!?]*|[!?]+(?=[${CLOSING}]*(?:\s*$|\s+[^\sa-z\ud800-\udfff]|[^\x00-\x7f」』）”’])))` +
    String.raw`(?:[${CLOSING}]+(?![ぁ-ん]))?(?![。！？｡!?${CLOSING}])|` +
    String.raw`(?<![0-9０-９])．|\.[${CLOSING}]*(?=\s*$|\s+[^\sa-z\ud800-\udfff])`,
  "g",
);
const SHORT =
  /\b(?:[A-Za-z]|e\.g|i\.e|vs|cf|approx|No|Nos|pp|Dr|Mr|Ms|Mrs|Prof|St|Mt|Jr|Sr|Inc|Ltd|Co|Corp|Fig|Vol|Jan|Feb|Mar|Apr|Jun|Jul|Aug|Sept?|Oct|Nov|Dec)$/;
const ENDS = new Set('.!?:。！？：｡．…」』）”’")');
const BREAK = /[、，；：]\s*|\s+/g;
// The line that is being written may become one that is not spoken.
const UNDECIDED = /^[ \t]*(?:[|`~$]|\\\[)/;
const OPENING = /[[<(`*~$]|__/;

/** A text that grows becomes sentences for a voice, each as soon as it is complete. */
export class SpokenSentences {
  /** what has not become a sentence: the line that is being written, and a formula whose end is to come */
  #rest = "";
  /** the sign that ends the code; empty outside of code */
  #fence = "";
  #isLineStart = true;
  /** the short sentences that wait for their next */
  #waiting = "";

  /**
   * @param {string} text the next piece
   * @returns {string[]} the sentences that it completes
   */
  feed(text) {
    this.#rest += text;
    /** @type {string[]} */
    const found = [];
    for (let end = this.#rest.indexOf("\n"); end >= 0; end = this.#rest.indexOf("\n", end + 1)) {
      const line = this.#rest.slice(0, end);
      if (!this.#fence && isFormulaOpen(line)) continue;
      this.#rest = this.#rest.slice(end + 1);
      this.#takeLine(line, found);
      end = -1;
    }
    this.#takeBegun(found);
    return found;
  }

  /** @returns {string[]} the remaining sentences */
  finish() {
    /** @type {string[]} */
    const found = [];
    for (const line of this.#rest.split("\n")) this.#takeLine(line, found);
    this.#rest = "";
    const waiting = this.#waiting.replace(/[ ,、]+$/, "");
    this.#waiting = "";
    const last = waiting.at(-1);
    if (last) found.push(...partsOf(waiting + (ENDS.has(last) ? "" : isAscii(last) ? "." : "。")));
    return found;
  }

  /**
   * @param {string} line without its end
   * @param {string[]} found
   */
  #takeLine(line, found) {
    const fence = this.#isLineStart ? (FENCE.exec(line)?.[1] ?? "") : "";
    const isStart = this.#isLineStart;
    this.#isLineStart = true;
    if (this.#fence) {
      if (line.trim() === this.#fence) this.#fence = "";
    } else if (fence) this.#fence = fence;
    else if (!isStart || !(TABLE_LINE.test(line) || RULE.test(line))) this.#say(isStart ? line.replace(LINE_MARK, "") : line, found);
  }

  /**
   * Take the complete sentences of the line that is being written.
   *
   * @param {string[]} found
   */
  #takeBegun(found) {
    const line = this.#rest;
    if (this.#fence || line.includes("\n") || (this.#isLineStart && UNDECIDED.test(line))) return;
    const mark = this.#isLineStart ? (LINE_MARK.exec(line)?.[0].length ?? 0) : 0;
    // Signs inside of links, addresses and brackets end nothing; a pair that is open may go on over the end of a sentence.
    let masked = line;
    for (const pattern of [MATHS, PICTURE, LINK, NOTE, EMPHASIS, ADDRESS, TAG, EMOJI, BRACKETS])
      masked = masked.replace(pattern, (part) => "x".repeat(part.length));
    // The next letter tells whether a mark ends its sentence.
    const isWhole = (/** @type {number} */ end) => end > mark && line.slice(end).trim() !== "" && !OPENING.test(masked.slice(mark, end));
    // An exclamation mark before a bracket begins a picture.
    const end = endsOf(masked).filter((each) => isWhole(each) && line[each] !== "[").at(-1);
    if (end === undefined) return;
    this.#say(line.slice(mark, end), found);
    this.#rest = line.slice(end);
    this.#isLineStart = false;
  }

  /**
   * @param {string} text of one line
   * @param {string[]} found
   */
  #say(text, found) {
    const spoken = spokenLine(text);
    let start = 0;
    for (const end of [...endsOf(spoken), spoken.length]) {
      const sentence = spoken.slice(start, end).trim();
      start = end;
      if (!/[\p{L}\p{N}]/u.test(sentence)) continue;
      this.#waiting += sentence;
      const last = this.#waiting.at(-1) ?? "";
      if (ENDS.has(last) && this.#waiting.length >= LEAST_CHARS) {
        found.push(...partsOf(this.#waiting));
        this.#waiting = "";
      } else if (isAscii(last)) this.#waiting += ENDS.has(last) ? " " : ", ";
      // An item of a list, or a heading: a voice pauses there.
      else if (!ENDS.has(last)) this.#waiting += "、";
    }
  }
}

/** @param {string} text */
export function sentencesOf(text) {
  const sentences = new SpokenSentences();
  return [...sentences.feed(text), ...sentences.finish()];
}

/**
 * The language that a voice should have for a text: that of its letters, or else the first that the reader prefers.
 *
 * @param {string} text
 * @param {readonly string[]} preferred such as `navigator.languages`
 */
export function languageOf(text, preferred) {
  if (/[\p{Script=Hiragana}\p{Script=Katakana}]/u.test(text)) return "ja";
  if (/\p{Script=Hangul}/u.test(text)) return "ko";
  if (/\p{Script=Han}/u.test(text)) return preferred.find((tag) => /^(ja|zh)/i.test(tag)) ?? "ja";
  return preferred.find((tag) => !/^(ja|zh|ko)/i.test(tag)) ?? "en";
}

/** @param {string} line */
function isFormulaOpen(line) {
  const rest = line.replace(MATHS, "");
  return rest.includes("$$") || /\\\[/.test(rest);
}

/** @param {string} line */
function spokenLine(line) {
  const words = line
    .replace(MATHS, " ")
    .replace(PICTURE, " ")
    .replace(LINK, "$1")
    .replace(EMPHASIS, "$2")
    .replace(EMPHASIS, "$2")
    .replace(NOTE, "")
    .replace(ADDRESS, "")
    .replace(LINE_BREAK, " ")
    .replace(TAG, "")
    .replace(EMOJI_BEFORE_MARK, "")
    .replace(EMOJI, " ");
  return words.replace(/\s+/g, " ").trim();
}

/**
 * @param {string} text
 * @returns {number[]} where its sentences end
 */
function endsOf(text) {
  return [...text.matchAll(END)]
    .filter(({ 0: sign, index }) => !sign.startsWith(".") || !SHORT.test(text.slice(Math.max(0, index - 8), index)))
    .map(({ 0: sign, index }) => index + sign.length);
}

/** @param {string} sentence */
function partsOf(sentence) {
  const parts = [];
  for (; sentence.length > MOST_CHARS; ) {
    const breaks = [...sentence.slice(LEAST_CHARS, MOST_CHARS).matchAll(BREAK)];
    const last = breaks.at(-1);
    const at = last ? LEAST_CHARS + last.index + last[0].length : MOST_CHARS;
    parts.push(sentence.slice(0, at).trim());
    sentence = sentence.slice(at).trim();
  }
  return sentence ? [...parts, sentence] : parts;
}

/** @param {string} character */
function isAscii(character) {
  return character.charCodeAt(0) < 128;
}
