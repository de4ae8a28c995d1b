/** A recording as it grows: its level, its pauses, when it is over, and the WAV files that the board reads (16 kHz, one channel). */

export const RATE = 16_000;
const SAMPLE_BYTES = 2;
const HEADER_BYTES = 44;
// Quieter than this is silence whatever the room: about -42 dB.
const LEAST_LEVEL = 0.008;
// Speech is this many times louder than the room.
const ABOVE_ROOM = 3;
const SILENCE_S = 1.5;
// Between two sentences; what was spoken before it can be recognised while the person goes on.
const PAUSE_S = 0.7;
// Less speech than this is a word or two, which a program recognises better with those that follow.
const LEAST_SPEECH_S = 2;
// Who pressed the button may think first.
const PATIENCE_S = 8;
export const LONGEST_S = 60;

/** @typedef {"" | "silence" | "nothing" | "long"} Ending why a recording is over; empty while it goes on */

export class Recording {
  /** @type {Float32Array[]} those since the last WAV was taken */
  #parts = [];
  #samples = 0;
  #rate;
  #room = LEAST_LEVEL / ABOVE_ROOM;
  #spokeAt_s = -1;
  #untakenSpeech_s = 0;
  level = 0;

  /** @param {number} rate samples a second */
  constructor(rate) {
    this.#rate = rate;
  }

  get seconds() {
    return this.#samples / this.#rate;
  }

  /** Whether anybody has spoken. */
  get hasSpeech() {
    return this.#spokeAt_s >= 0;
  }

  /** Whether anybody has spoken since the last WAV was taken. */
  get hasUntakenSpeech() {
    return this.#untakenSpeech_s > 0;
  }

  /** Whether the person pauses after enough speech for a WAV of its own. */
  get isPause() {
    return this.#untakenSpeech_s >= LEAST_SPEECH_S && this.seconds - this.#spokeAt_s >= PAUSE_S;
  }

  /**
   * @param {Float32Array} samples the next ones
   * @returns {Ending}
   */
  add(samples) {
    this.#parts.push(samples);
    this.#samples += samples.length;
    this.level = Math.sqrt(samples.reduce((sum, sample) => sum + sample * sample, 0) / Math.max(1, samples.length));
    if (this.level > Math.max(LEAST_LEVEL, ABOVE_ROOM * this.#room)) {
      this.#spokeAt_s = this.seconds;
      this.#untakenSpeech_s += samples.length / this.#rate;
    }
    // The room is what is heard between words: it falls quickly to a pause, and rises slowly.
    this.#room += (this.level - this.#room) * (this.level < this.#room ? 0.2 : 0.0005);
    if (this.seconds >= LONGEST_S) return "long";
    if (this.hasSpeech) return this.seconds - this.#spokeAt_s >= SILENCE_S ? "silence" : "";
    return this.seconds >= PATIENCE_S ? "nothing" : "";
  }

  /** @returns {ArrayBuffer} a WAV of the sound since the last one was taken */
  takeWav() {
    const all = new Float32Array(this.#parts.reduce((sum, { length }) => sum + length, 0));
    let place = 0;
    for (const part of this.#parts) {
      all.set(part, place);
      place += part.length;
    }
    this.#parts = [];
    this.#untakenSpeech_s = 0;
    return wavOf(resampled(all, this.#rate));
  }
}

/**
 * Each new sample is the mean of those that it stands for.
 *
 * @param {Float32Array} samples
 * @param {number} rate of them
 */
export function resampled(samples, rate) {
  const step = rate / RATE;
  const made = new Float32Array(Math.floor(samples.length / step));
  for (let place = 0; place < made.length; place += 1) {
    const start = Math.floor(place * step);
    const end = Math.max(start + 1, Math.floor((place + 1) * step));
    let sum = 0;
    for (let each = start; each < end; each += 1) sum += samples[each] ?? 0;
    made[place] = sum / (end - start);
  }
  return made;
}

/** @param {Float32Array} samples at `RATE` */
export function wavOf(samples) {
  const size = samples.length * SAMPLE_BYTES;
  const view = new DataView(new ArrayBuffer(HEADER_BYTES + size));
  const words = (/** @type {number} */ at, /** @type {string} */ text) =>
    [...text].forEach((letter, place) => view.setUint8(at + place, letter.charCodeAt(0)));
  words(0, "RIFF");
  view.setUint32(4, HEADER_BYTES - 8 + size, true);
  words(8, "WAVEfmt ");
  view.setUint32(16, 16, true);
  view.setUint16(20, 1, true);
  view.setUint16(22, 1, true);
  view.setUint32(24, RATE, true);
  view.setUint32(28, RATE * SAMPLE_BYTES, true);
  view.setUint16(32, SAMPLE_BYTES, true);
  view.setUint16(34, 8 * SAMPLE_BYTES, true);
  words(36, "data");
  view.setUint32(40, size, true);
  samples.forEach((sample, place) =>
    view.setInt16(HEADER_BYTES + place * SAMPLE_BYTES, Math.round(32_767 * Math.max(-1, Math.min(1, sample))), true),
  );
  return view.buffer;
}
