import assert from "node:assert/strict";
import test from "node:test";
import { BlockReader, blocks } from "../../../rkllm_mcp/surfaces/web/js/markdown/blocks.js";
import { inline, isSafeAddress } from "../../../rkllm_mcp/surfaces/web/js/markdown/inline.js";
import { isWorthDrawing } from "../../../rkllm_mcp/surfaces/web/js/markdown/view.js";

const text = (/** @type {string} */ words) => ({ kind: "text", text: words });
const SAMPLE = [
  "# Title #",
  "",
  "Here:",
  "| a | b |",
  "|---|--:|",
  "| 1 | `x|y` |",
  "",
  "1. one",
  "   - below",
  "10. ten",
  "   ```py",
  "   print(1)",
  "   ```",
  "- [x] done",
  "> said",
  "> twice",
  "---",
  "last **line**",
  "goes on",
].join("\n");

test("every kind of block is told from the others", () => {
  const list = { kind: "item", number: 1, indent: 0, content: 3, isDone: null };
  assert.deepEqual(blocks(SAMPLE), [
    { kind: "heading", level: 1, text: "Title" },
    { kind: "paragraph", text: "Here:", indent: 0 },
    { kind: "table", header: ["a", "b"], align: ["start", "end"], rows: [["1", "`x|y`"]] },
    { ...list, isOrdered: true, text: "one" },
    { ...list, isOrdered: false, indent: 3, content: 5, text: "below" },
    { ...list, isOrdered: true, number: 10, content: 4, text: "ten" },
    { kind: "code", language: "py", text: "print(1)\n", indent: 3, fence: "```" },
    { ...list, isOrdered: false, content: 2, text: "done", isDone: true },
    { kind: "quote", text: "said\ntwice" },
    { kind: "rule" },
    { kind: "paragraph", text: "last **line**\ngoes on", indent: 0 },
  ]);
});

test("the blocks are the same wherever the text is cut", () => {
  const whole = blocks(SAMPLE);
  for (let cut = 1; cut < SAMPLE.length; cut += 1) {
    const reader = new BlockReader();
    const parts = [SAMPLE.slice(0, cut), SAMPLE.slice(cut)].flatMap((part) => reader.feed(part).settled);
    assert.deepEqual([...parts, ...reader.finish()], whole, `cut at ${cut}`);
  }
});

test("what is still being written is shown as it would be if it were complete", () => {
  const reader = new BlockReader();
  assert.deepEqual(reader.feed("- one\n- tw").settled, []);
  assert.deepEqual(
    reader.feed("o").live.map((block) => "text" in block && block.text),
    ["one", "two"],
  );
  assert.deepEqual(
    reader.feed("\n``").live.map((block) => block.kind),
    ["item"],
    "two ticks may become a fence",
  );
});

test("a fence that is never closed is code to the end, and a longer one closes a shorter", () => {
  assert.deepEqual(blocks("~~~\na\n```\nb"), [
    { kind: "code", language: "", text: "a\n```\nb\n", indent: 0, fence: "~~~" },
  ]);
  assert.deepEqual(
    blocks("```\na\n`````\nb").map((block) => block.kind),
    ["code", "paragraph"],
  );
});

test("a sentence that breaks before a year begins no list", () => {
  assert.deepEqual(blocks("It ended in\n1945. Then").length, 1);
  assert.deepEqual(blocks("It is\n- 5 degrees").length, 2);
});

test("a bar in a cell can be written with a backslash", () => {
  const [table] = blocks("| a |\n|---|\n| x \\| y |");
  assert.deepEqual(table?.kind === "table" && table.rows, [["x | y"]]);
});

test("marks within a line nest, and what is no mark stays as it was written", () => {
  assert.deepEqual(inline("a **b *c*** _d_ ~~e~~ `f*` g"), [
    text("a "),
    { kind: "strong", spans: [text("b "), { kind: "em", spans: [text("c")] }] },
    text(" "),
    { kind: "em", spans: [text("d")] },
    text(" "),
    { kind: "del", spans: [text("e")] },
    text(" "),
    { kind: "code", text: "f*" },
    text(" g"),
  ]);
  for (const plain of [
    "5 * 3 * 2",
    "snake_case_name",
    "**open",
    "a ** b **",
    "<b>x</b>",
    "[x](y",
    "`open",
    "2 < 3 && 4",
  ]) {
    assert.deepEqual(inline(plain), [text(plain)]);
  }
});

test("Japanese needs no space around a mark, and a line break is a line break", () => {
  assert.deepEqual(inline("今日は**晴れ**です\n明日も"), [
    text("今日は"),
    { kind: "strong", spans: [text("晴れ")] },
    text("です"),
    { kind: "break" },
    text("明日も"),
  ]);
});

test("links open pages and letters and nothing else", () => {
  const link = (/** @type {string} */ href, /** @type {string} */ label) => ({
    kind: "link",
    href,
    spans: [text(label)],
  });
  assert.deepEqual(inline('[x](https://e.org/a_(b) "t")'), [link("https://e.org/a_(b)", "x")]);
  assert.deepEqual(inline("![p](https://e.org/p.png)"), [link("https://e.org/p.png", "p")], "a picture is not fetched");
  assert.deepEqual(inline("見て https://e.org/です。"), [
    text("見て "),
    link("https://e.org/", "https://e.org/"),
    text("です。"),
  ]);
  assert.deepEqual(inline("(see https://e.org/a.)"), [
    text("(see "),
    link("https://e.org/a", "https://e.org/a"),
    text(".)"),
  ]);
  for (const address of [
    "javascript:alert(1)",
    "data:text/html,x",
    "vbscript:x",
    "file:///etc/passwd",
    " javascript:x",
    "//e.org",
  ]) {
    assert.equal(isSafeAddress(address), false);
    assert.deepEqual(inline(`[x](${address})`), [text(`[x](${address})`)]);
  }
});

test("text made to be slow is read as fast as any other", () => {
  const many = 20_000;
  const evil = [
    `${"[".repeat(many)}](x`,
    "[a](".repeat(many),
    "*a".repeat(many),
    "**".repeat(many),
    "_a ".repeat(many),
    "*a **b ".repeat(many),
    "`a``".repeat(many),
    `http://${")".repeat(many)}`,
    `#${" ".repeat(many)}x`,
    `# ${"#".repeat(many)}x`,
    `\`\`\`${" ".repeat(many)}\``,
    `${"|".repeat(many)}\n${"|-".repeat(many)}`,
    "a\n".repeat(many),
    "> ".repeat(many),
  ];
  for (const words of evil) {
    for (const block of blocks(words)) if ("text" in block) inline(block.text);
  }
});

test("reading a letter at a time costs as many steps as there are lines, not as many as there are pairs of them", () => {
  let settled = 0;
  const reader = new BlockReader();
  for (let count = 0; count < 20_000; count += 1) settled += reader.feed("- item\n").settled.length;
  assert.equal(settled, 19_999, "each is handed over once, and only the last may still change");
});

test("a paragraph that never ends is drawn in steps that grow, so that all of them together stay in proportion", () => {
  const letters = (/** @type {number} */ length) => {
    let [drawn, waiting, sum] = [0, 0, 0];
    for (let written = 4; written <= length; written += 4) {
      waiting += 4;
      if (!isWorthDrawing(drawn, waiting)) continue;
      [drawn, waiting, sum] = [written, 0, sum + written];
    }
    return sum;
  };
  assert.ok(letters(800_000) < 11 * letters(80_000), "ten times the text, ten times the letters drawn");
});

test("an address is told from the text around it, with brackets, in quotation marks and without blanks", () => {
  const found = (/** @type {string} */ words) =>
    inline(words).flatMap((span) => (span.kind === "link" ? [span.href] : []));
  for (const [words, address] of [
    ["詳細はhttps://e.org/foo。次", "https://e.org/foo"],
    ["全角（https://e.org/foo）です", "https://e.org/foo"],
    ["https://e.org/guide，详见", "https://e.org/guide"],
    ["https://e.org입니다", "https://e.org"],
    ["“https://e.org/q”", "https://e.org/q"],
    ["https://e.org/q…", "https://e.org/q"],
    ["(https://e.org/a_(b)).", "https://e.org/a_(b)"],
    ["see https://e.org/a_(b), or", "https://e.org/a_(b)"],
  ]) {
    assert.deepEqual(found(words), [address], words);
  }
  assert.deepEqual(found("xhttps://e.org and redirect?to=/https://e.org"), []);
});

test("of HTML only a line break is obeyed, and the entities that models write are characters", () => {
  const lines = [text("a"), { kind: "break" }, text("b"), { kind: "break" }, text("c")];
  assert.deepEqual(inline("a<br>b<BR />c"), lines);
  assert.deepEqual(inline("`<br>` <br class='x'> <brx>"), [
    { kind: "code", text: "<br>" },
    text(" <br class='x'> <brx>"),
  ]);
  assert.deepEqual(inline("List&lt;T&gt; &amp; &#39;&#x3042;&#39; `&lt;`"), [
    text("List<T> & 'あ' "),
    { kind: "code", text: "&lt;" },
  ]);
  for (const plain of ["&unknown;", "&#0;", "&#27;", "&#xd800;", "&#9999999;", "&amp", "a & b; c"]) {
    assert.deepEqual(inline(plain), [text(plain)]);
  }
  assert.deepEqual(inline("&#42;&#42;a&#42;&#42;"), [text("**a**")], "a character, not markup");
});

test("a product is no emphasis, and marks in text without blanks are obeyed", () => {
  assert.deepEqual(inline("2*3*4 = 24"), [text("2*3*4 = 24")]);
  assert.deepEqual(inline("これは**「重要」**な点、**該当。**次"), [
    text("これは"),
    { kind: "strong", spans: [text("「重要」")] },
    text("な点、"),
    { kind: "strong", spans: [text("該当。")] },
    text("次"),
  ]);
});
