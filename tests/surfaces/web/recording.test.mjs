import assert from "node:assert/strict";
import test from "node:test";
import { Recording, resampled, wavOf } from "../../../rkllm_mcp/surfaces/web/js/speech/recording.js";

const PART_S = 0.05;

/**
 * What a recording says of sound whose level changes.
 *
 * @param {[number, number][]} levels seconds and the level
 */
function ended(levels, rate = 48_000) {
  const recording = new Recording(rate);
  for (const [seconds, level] of levels) {
    for (let each = 0; each < Math.round(seconds / PART_S); each += 1) {
      const ending = recording.add(Float32Array.from({ length: rate * PART_S }, (_, place) => (place % 2 ? level : -level)));
      if (ending) return [ending, Math.round(recording.seconds * 10) / 10];
    }
  }
  return ["", Math.round(recording.seconds * 10) / 10];
}

test("a recording ends after a second and a half of silence, but not in a pause between words", () => {
  assert.deepEqual(ended([[1, 0], [2, 0.1], [1, 0.001], [1, 0.1], [9, 0.001]]), ["silence", 6.5]);
  assert.deepEqual(ended([[0.5, 0.01], [2, 0.2], [9, 0.01]]), ["silence", 4], "a room with a fan in it");
});

test("a recording without speech ends after eight seconds, and one without silence after a minute", () => {
  assert.deepEqual(ended([[20, 0.001]]), ["nothing", 8]);
  assert.deepEqual(ended(Array.from({ length: 80 }, () => /** @type {[number, number][]} */ ([[0.8, 0.1], [0.2, 0.001]])).flat()), ["long", 60]);
});

test("speech before a pause is a WAV of its own, and silence is none", () => {
  const recording = new Recording(16_000);
  const add = (/** @type {number} */ seconds, /** @type {number} */ level) => {
    const pauses = [];
    for (let each = 0; each < Math.round(seconds / PART_S); each += 1) {
      recording.add(Float32Array.from({ length: 16_000 * PART_S }, (_, place) => (place % 2 ? level : -level)));
      if (recording.isPause) pauses.push(recording.takeWav().byteLength);
    }
    return pauses;
  };
  assert.deepEqual(add(1, 0.1).concat(add(1, 0.001)), [], "a word is recognised with those that follow");
  assert.deepEqual(add(1.5, 0.1), []);
  const [bytes = 0, ...others] = add(1.4, 0.001);
  assert.deepEqual(others, []);
  assert.ok(Math.abs(bytes - 44 - 2 * 16_000 * 4.2) < 2 * 16_000 * 2 * PART_S, `${bytes}`);
  assert.equal(recording.hasUntakenSpeech, false);
  add(0.5, 0.1);
  assert.equal(recording.hasUntakenSpeech, true);
});

test("sound at any rate becomes 16 kHz of the same length and level", () => {
  for (const rate of [8000, 16_000, 44_100, 48_000]) {
    const made = resampled(new Float32Array(rate).fill(0.5), rate);
    assert.ok(Math.abs(made.length - 16_000) <= 1, `${rate}`);
    assert.ok(made.every((sample) => sample === 0.5), `${rate}`);
  }
});

test("a WAV says its length, and sound that is too loud is cut", () => {
  const view = new DataView(wavOf(Float32Array.of(0, 1, -1, 2)));
  assert.equal(view.byteLength, 52);
  assert.deepEqual([view.getUint32(4, true), view.getUint32(24, true), view.getUint32(40, true)], [44, 16_000, 8]);
  assert.deepEqual([0, 1, 2, 3].map((place) => view.getInt16(44 + 2 * place, true)), [0, 32_767, -32_767, 32_767]);
});
