/** Runs in the browser's thread for sound: hands the page what the microphone hears, in parts of some 40 milliseconds. */

const SAMPLES = 2048;

class Recorder extends AudioWorkletProcessor {
  #part = new Float32Array(SAMPLES);
  #filled = 0;

  /** @param {Float32Array[][]} inputs */
  process([input]) {
    const heard = input?.[0];
    if (!heard) return true;
    this.#part.set(heard, this.#filled);
    this.#filled += heard.length;
    if (this.#filled >= SAMPLES) {
      this.port.postMessage(this.#part);
      this.#part = new Float32Array(SAMPLES);
      this.#filled = 0;
    }
    return true;
  }
}

registerProcessor("recorder", Recorder);
