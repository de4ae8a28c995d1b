import assert from "node:assert/strict";
import { readdirSync, readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import test from "node:test";
import { isSending } from "../../../rkllm_mcp/surfaces/web/js/chat/composer.js";
import { timeline } from "../../../rkllm_mcp/surfaces/web/js/charts/timeline.js";
import { fieldsOf, read } from "../../../rkllm_mcp/surfaces/web/js/forms/schema.js";
import { bestLanguage } from "../../../rkllm_mcp/surfaces/web/js/i18n.js";
import en from "../../../rkllm_mcp/surfaces/web/js/phrases.en.js";
import ja from "../../../rkllm_mcp/surfaces/web/js/phrases.ja.js";
import { isPicture, isTooLarge, MOST_MEGAPIXELS_OF_HEIC, sizeOf } from "../../../rkllm_mcp/surfaces/web/js/chat/picture_size.js";
import { addressOf, codeOf, conversationOf } from "../../../rkllm_mcp/surfaces/web/js/router.js";
import { secondsOf } from "../../../rkllm_mcp/surfaces/web/js/time.js";
import { pieces } from "../../../rkllm_mcp/surfaces/web/js/words.js";

const FOLDER = fileURLToPath(new URL("../../../rkllm_mcp/surfaces/web/", import.meta.url));

test("a form's schema becomes fields", () => {
  const fields = fieldsOf({
    properties: {
      name: { type: "string", title: "Name", minLength: 2, format: "email" },
      size: { type: "string", oneOf: [{ const: "s", title: "Small" }, { const: "l" }] },
      tags: { type: "array", items: { enum: ["a", "b"], enumNames: ["A"] }, maxItems: 1 },
      more: { type: "object" },
      odd: true,
    },
    required: ["name"],
  });
  const bare = { description: "", initial: null, choices: [], format: "", least: null, most: null, isRequired: false };
  assert.deepEqual(fields, [
    { ...bare, name: "name", title: "Name", kind: "text", isRequired: true, format: "email", least: 2 },
    {
      ...bare,
      name: "size",
      title: "size",
      kind: "choice",
      choices: [
        { value: "s", title: "Small" },
        { value: "l", title: "l" },
      ],
    },
    {
      ...bare,
      name: "tags",
      title: "tags",
      kind: "choices",
      choices: [
        { value: "a", title: "A" },
        { value: "b", title: "b" },
      ],
      most: 1,
    },
    { ...bare, name: "more", title: "more", kind: "json" },
  ]);
  assert.deepEqual(fieldsOf(null), []);
});

/** @type {[object, any, object][]} */
const ENTERED = [
  [{ type: "string" }, "x", { value: "x" }],
  [{ type: "string" }, "", {}],
  [{ type: "string", default: "x" }, "", { value: "" }],
  [{ type: "string", minLength: 2 }, "𠮷", { problem: { phrase: "form.short", values: { count: 2 } } }],
  [{ type: "string", maxLength: 1 }, "ab", { problem: { phrase: "form.long", values: { count: 1 } } }],
  [{ type: "string", format: "email" }, "a", { problem: { phrase: "form.format.email" } }],
  [{ type: "string", format: "uri" }, "e.org", { problem: { phrase: "form.format.uri" } }],
  [{ type: "string", format: "date" }, "2026-11-22", { value: "2026-11-22" }],
  [{ type: "string", format: "date-time" }, "2026-11-22T09:30:00Z", { value: "2026-11-22T09:30:00Z" }],
  [{ type: "string", format: "hostname" }, "anything", { value: "anything" }],
  [{ type: "integer" }, "３", { value: 3 }],
  [{ type: "integer" }, "3.5", { problem: { phrase: "form.integer" } }],
  [{ type: "number" }, "many", { problem: { phrase: "form.number" } }],
  [{ type: "number", minimum: 1 }, "0", { problem: { phrase: "form.least", values: { count: 1 } } }],
  [{ type: "number", maximum: 1 }, "2", { problem: { phrase: "form.most", values: { count: 1 } } }],
  [{ type: "boolean" }, false, { value: false }],
  [{ enum: [1, 2] }, "1", { value: 2 }],
  [{ type: "array", items: { enum: ["a", "b"] } }, [1], { value: ["b"] }],
  [
    { type: "array", items: { enum: ["a", "b"] }, minItems: 2 },
    [1],
    { problem: { phrase: "form.choose_least", values: { count: 2 } } },
  ],
  [
    { type: "array", items: { enum: ["a", "b"] }, maxItems: 1 },
    [0, 1],
    { problem: { phrase: "form.choose_most", values: { count: 1 } } },
  ],
  [{ type: "object" }, '{"a": 1}', { value: { a: 1 } }],
  [{}, "not JSON", { value: "not JSON" }],
];

test("what is entered becomes the value to send, or says what is wrong", () => {
  for (const [schema, entered, expected] of ENTERED) {
    const [field] = fieldsOf({ properties: { it: schema } });
    assert.deepEqual(field && read(field, entered), expected, JSON.stringify(schema));
  }
});

test("a field that is required has to be filled in", () => {
  const fields = fieldsOf({ properties: { a: { type: "string" }, b: { enum: [1] } }, required: ["a", "b"] });
  for (const field of fields) assert.deepEqual(read(field, ""), { problem: { phrase: "form.required" } });
});

test("Enter sends, but not with Shift, on a phone, or while an input method composes", () => {
  const enter = { key: "Enter", shiftKey: false, isComposing: false, keyCode: 13 };
  const cases = /** @type {[object, boolean, boolean][]} */ ([
    [{}, true, false],
    [{ ctrlKey: true }, true, true],
    [{ metaKey: true }, true, true],
    [{ shiftKey: true }, false, false],
    [{ isComposing: true }, false, false],
    [{ keyCode: 229 }, false, false],
    [{ key: "a" }, false, false],
  ]);
  for (const [change, withKeys, onPhone] of cases) {
    const event = /** @type {any} */ ({ ...enter, ...change });
    assert.deepEqual([isSending(event, false), isSending(event, true)], [withKeys, onPhone]);
  }
});

test("calls stand on a lane each, from the first to the end of the last", () => {
  const { lanes, bars, start, end } = timeline([
    { started: 100, seconds: 10, lane: "b" },
    { started: 110, seconds: 30, lane: "a" },
  ]);
  assert.deepEqual([lanes, start, end], [["a", "b"], 100, 140]);
  assert.deepEqual(bars, [
    { x: 0, width: 0.25, lane: 1 },
    { x: 0.25, width: 0.75, lane: 0 },
  ]);
});

test("an address names a conversation, and what is no address names none", () => {
  assert.equal(conversationOf(addressOf("a/b 会")), "a/b 会");
  for (const hash of ["", "#/", "#/c/", "#/x/1", "#/c/%E0%A4%A"]) assert.equal(conversationOf(hash), "");
  assert.deepEqual(["#/link/a-B_9", "#/link/", "#/link/a/b", "#/c/link"].map(codeOf), ["a-B_9", "", "", ""]);
  assert.deepEqual(["#/link/a-B_9", "#/link/", "#/link/a/b", "#/c/link", ""].map(codeOf), ["a-B_9", "", "", "", ""]);
});

test("a moment is read in either spelling", () => {
  assert.deepEqual([12.5, "2026-11-22T00:00:00Z", "", null, "soon"].map(secondsOf), [12.5, 1795305600, 0, 0, 0]);
});

test("the language is the first of the browser's that there is, or English", () => {
  assert.deepEqual([["ja-JP", "en"], ["fr", "ja"], ["en-GB", "ja"], ["fr"], []].map(bestLanguage), [
    "ja",
    "ja",
    "en",
    "en",
    "en",
  ]);
});

test("every phrase is there in both languages, with the same places to fill", () => {
  const places = (/** @type {string} */ phrase) => [...phrase.matchAll(/\{\w+\}/g)].map(String).sort();
  assert.deepEqual(Object.keys(ja), Object.keys(en));
  for (const [key, phrase] of Object.entries(en)) {
    assert.ok(phrase.trim() !== "" && ja[key].trim() !== "", key);
    assert.deepEqual(places(ja[key]), places(phrase), key);
  }
});

test("every phrase that the page says is there, and every one that is there is said", () => {
  const names = readdirSync(FOLDER, { recursive: true, encoding: "utf8" }).filter((name) => /\.(js|html)$/.test(name) && !name.includes("vendor"));
  const sources = names
    .filter((name) => !name.includes("phrases."))
    .map((name) => readFileSync(FOLDER + name, "utf8"));
  const all = sources.join("\n");
  const literal = [
    ...all.matchAll(
      /\b(?:say|t|named|button|notice|confirmed|written|openDialog|card|phrase:)\(?\s*"([a-z_]+(?:\.[a-z_.-]+)?)"/g,
    ),
  ];
  const attributes = [...all.matchAll(/data-(?:say|name|hint)="([^"]+)"/g)];
  for (const [, key] of [...literal, ...attributes]) assert.ok(String(key) in en, `${key} is not there`);
  // Keys that are put together from a fixed beginning and a value.
  const begun = [...all.matchAll(/`([a-z_]+\.(?:[a-z_]+\.)?)\$\{/g)].map((found) => String(found[1]));
  const isSaid = (/** @type {string} */ key) =>
    all.includes(`"${key.replace(/_one$/, "")}"`) || begun.some((start) => key.startsWith(start));
  assert.deepEqual(
    Object.keys(en).filter((key) => !isSaid(key)),
    [],
  );
});

test("the size of a picture is read from its head", () => {
  const head = (...parts) => new DataView(Uint8Array.from([...parts.flat(), ...Array(40).fill(0)]).buffer);
  const letters = (text) => [...text].map((letter) => letter.charCodeAt(0));
  const size = { width: 300, height: 200 };
  const jpeg = [0xff, 0xd8, 0xff, 0xe0, 0, 4, 1, 2, 0xff, 0xc4, 0, 3, 9, 0xff, 0xc2, 0, 17, 8, 0, 200, 1, 44];
  for (const data of [
    head([0x89], letters("PNG\r\n\x1a\n"), [0, 0, 0, 13], letters("IHDR"), [0, 0, 1, 44], [0, 0, 0, 200]),
    head(letters("GIF89a"), [44, 1, 200, 0]),
    head(letters("BM"), Array(12).fill(0), [40, 0, 0, 0], [44, 1, 0, 0], [56, 255, 255, 255]),
    head(letters("BM"), Array(12).fill(0), [12, 0, 0, 0], [44, 1, 200, 0]),
    head(letters("RIFF"), Array(4).fill(0), letters("WEBPVP8X"), Array(8).fill(0), [43, 1, 0, 199, 0, 0]),
    head(letters("RIFF"), Array(4).fill(0), letters("WEBPVP8L"), Array(4).fill(0), [0x2f, 43, 193, 49, 0]),
    head(letters("RIFF"), Array(4).fill(0), letters("WEBPVP8 "), Array(10).fill(0), [44, 1, 200, 0]),
    head(jpeg),
    head(Array(4).fill(0), letters("ftypavif"), Array(30).fill(0), letters("ispe"), Array(4).fill(0), [0, 0, 1, 44, 0, 0, 0, 200]),
  ])
    assert.deepEqual(sizeOf(data), size);
  for (const other of [head(letters("<svg")), head(letters("BMW and others, a text")), head([0xff, 0xd8, 1, 2]), new DataView(new ArrayBuffer(3))])
    assert.equal(sizeOf(other), null);
  for (const [width, height, isLarge] of [
    [20_000, 2000, false],
    [20_001, 1, true],
    [1, 39_000_000, true],
    [8000, 5001, true],
  ])
    assert.equal(isTooLarge({ width, height }), isLarge);
  assert.equal(isTooLarge({ width: 7296, height: 5472 }, MOST_MEGAPIXELS_OF_HEIC), true);
  for (const [data, isOne] of [
    [head([0xff, 0xd8, 0xff, 0xe1, 0xff, 0xff]), true],
    [head(Array(4).fill(0), letters("ftypheic")), true],
    [head(Array(4).fill(0), letters("ftypmp42")), false],
    [head(letters("BMW and others, a text")), false],
  ])
    assert.equal(isPicture(data), isOne);
});

test("each word of a search is marked where it stands, and its signs mean nothing", () => {
  assert.deepEqual(pieces("A trip to Kyoto", "kyoto　TRIP"), ["A ", "trip", " to ", "Kyoto", ""]);
  assert.deepEqual(pieces("C++ (a|b) 50%", "(a|b) c++ ++"), ["", "C++", " ", "(a|b)", " 50%"]);
  assert.deepEqual(pieces("ＵＳＢと京都", "usb 都"), ["", "ＵＳＢ", "と京", "都", ""]);
  assert.deepEqual(pieces("[x]\\d 👩‍💻", "\\d 👩‍💻 -"), ["[x]", "\\d", " ", "👩‍💻", ""]);
  assert.deepEqual(pieces("as it is", "  "), ["as it is"]);
});
