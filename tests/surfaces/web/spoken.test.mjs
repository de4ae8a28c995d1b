import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import test from "node:test";
import { languageOf, sentencesOf, SpokenSentences } from "../../../rkllm_mcp/surfaces/web/js/speech/spoken.js";

const CASES = JSON.parse(readFileSync(new URL("../../speech/sentences.json", import.meta.url), "utf8"));

for (const [text, sentences] of Object.entries(CASES)) {
  test(`the same sentences as the board's, in pieces of any size: ${JSON.stringify(text)}`, () => {
    assert.deepEqual(sentencesOf(text), sentences);
    for (const size of [1, 2, 3, 7]) {
      const cutter = new SpokenSentences();
      const found = [];
      for (let place = 0; place < text.length; place += size) found.push(...cutter.feed(text.slice(place, place + size)));
      assert.deepEqual([...found, ...cutter.finish()], sentences, `in pieces of ${size}`);
    }
  });
}

test("a sentence is there before its line is complete, and nothing of a line that may not be spoken", () => {
  const cutter = new SpokenSentences();
  assert.deepEqual(cutter.feed("Tomorrow it will rain. Take"), ["Tomorrow it will rain."]);
  assert.deepEqual(cutter.feed(" an umbrella [with you. Really](https://example.com/?a=b"), []);
  assert.deepEqual(cutter.feed("). Yes it is so.\n| Is it? | Yes. "), ["Take an umbrella with you.", "Really. Yes it is so."]);
  assert.deepEqual(cutter.feed("|\n```\nx. y. z.\n"), []);
  assert.deepEqual(cutter.feed("```\n傘を持っていってください。"), []);
  assert.deepEqual(cutter.feed("では"), ["傘を持っていってください。"]);
  assert.deepEqual(cutter.finish(), ["では。"]);
});

test("a long sentence is cut into parts that hold all of it", () => {
  for (const unit of ["and then we walked, ", "それから歩いて、", "nospaceatall"]) {
    const text = unit.repeat(100);
    const parts = sentencesOf(text);
    assert.ok(Math.max(...parts.map((part) => part.length)) <= 241);
    const bare = (/** @type {string} */ words) => words.replaceAll(/\s/g, "").replace(/[.。,、]+$/, "");
    assert.equal(bare(parts.join("")), bare(text));
  }
});

test("a text has a voice of its language", () => {
  assert.equal(languageOf("明日は晴れです。", ["en-US"]), "ja");
  assert.equal(languageOf("東京", ["en-US"]), "ja");
  assert.equal(languageOf("東京", ["zh-TW", "ja"]), "zh-TW");
  assert.equal(languageOf("내일", ["en"]), "ko");
  assert.equal(languageOf("Sunny", ["ja", "de-DE"]), "de-DE");
  assert.equal(languageOf("Sunny", ["ja"]), "en");
});
