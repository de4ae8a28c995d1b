/**
 * Reads answers aloud, one at a time: with the browser's own voice, or with the board's where its owner has configured a
 * program that speaks. Sentences follow one another; a stop is at once.
 */
import { api } from "../access.js";
import { iconButton } from "../buttons.js";
import { preference } from "../preferences.js";
import { sentenceOf } from "../problems.js";
import { showLine } from "../toast.js";
import { languageOf, SpokenSentences } from "./spoken.js";

// Browsers list their voices a moment after they are asked.
const VOICES_MS = 2000;
const HEADER_BYTES = 44;

class Speaker {
  /** whether the board has a program that speaks */
  hasBoard = false;
  /** whether a spoken conversation goes on: each answer is read as it comes */
  readsAll = false;
  /** @type {(() => void)[]} those who wait until nothing is read */
  #waiting = [];
  /** @type {object | null} the answer that is read */
  #owner = null;
  /** @type {HTMLElement | null} its button */
  #button = null;
  #sentences = new SpokenSentences();
  /** @type {string[]} */
  #queue = [];
  #isWhole = false;
  #isSaying = false;
  #all = "";
  #run = new AbortController();
  /** @type {AudioContext | null} */
  #audio = null;
  /** @type {SpeechSynthesisUtterance | null} an utterance that nothing refers to may be collected while it sounds */
  #utterance = null;

  get isReading() {
    return this.#owner !== null;
  }

  /** Whether answers are read as they come. */
  get isAutomatic() {
    return this.readsAll || preference("aloud") === "on";
  }

  /**
   * The button that reads an answer, or stops it.
   *
   * @param {object} owner the answer
   * @param {() => string} text
   */
  button(owner, text) {
    const act = () => {
      if (this.#owner === owner) {
        this.stop();
        return;
      }
      this.begin(owner);
      this.#show(control);
      this.feed(owner, text());
      this.finish(owner);
    };
    const control = iconButton("speaker", "chat.aloud", act, { class: "icon-button aloud", "aria-pressed": false });
    if (this.#owner === owner) this.#show(control);
    return control;
  }

  /**
   * Read this answer from now on, and no other.
   *
   * @param {object} owner
   */
  begin(owner) {
    this.stop();
    this.#owner = owner;
    this.#run = new AbortController();
    this.#sentences = new SpokenSentences();
    this.#isWhole = false;
    this.#all = "";
    // Phones let a page sound only if the person has just pressed something.
    if (this.#usesBoard) {
      this.#audio ??= new AudioContext();
      void this.#audio.resume();
    }
  }

  /**
   * More of the text of an answer; that of an answer that is not read any more is left out.
   *
   * @param {object} owner
   * @param {string} text
   */
  feed(owner, text) {
    if (this.#owner !== owner) return;
    this.#all += text;
    this.#queue.push(...this.#sentences.feed(text));
    void this.#sayAll();
  }

  /** @param {object} owner the answer has come to its end */
  finish(owner) {
    if (this.#owner !== owner) return;
    this.#queue.push(...this.#sentences.finish());
    this.#isWhole = true;
    void this.#sayAll();
  }

  stop() {
    this.#owner = null;
    this.#queue = [];
    this.#run.abort();
    globalThis.speechSynthesis?.cancel();
    this.#isSaying = false;
    this.#show(null);
    for (const resolve of this.#waiting.splice(0)) resolve();
  }

  /** Wait until nothing is read. */
  async silence() {
    if (this.isReading) await new Promise((resolve) => this.#waiting.push(() => resolve(undefined)));
  }

  get #usesBoard() {
    return this.hasBoard && (preference("voice") === "board" || !("speechSynthesis" in window));
  }

  /** @param {HTMLElement | null} button which reads now */
  #show(button) {
    this.#button?.setAttribute("aria-pressed", "false");
    button?.setAttribute("aria-pressed", "true");
    this.#button = button;
  }

  async #sayAll() {
    if (this.#isSaying) return;
    this.#isSaying = true;
    const { signal } = this.#run;
    try {
      /** @type {Promise<AudioBuffer> | null} made while the sentence before sounds */
      let next = null;
      for (let sentence = this.#queue.shift(); sentence !== undefined; sentence = this.#queue.shift()) {
        if (this.#usesBoard) {
          const sound = await (next ?? this.#soundOf(sentence, signal));
          if (signal.aborted) return;
          next = this.#queue[0] ? this.#soundOf(this.#queue[0], signal) : null;
          // Its failure is met when its turn comes.
          next?.catch(() => undefined);
          await this.#play(sound, signal);
        } else await this.#utter(sentence, signal);
        if (signal.aborted) return;
      }
      this.#isSaying = false;
      if (this.#isWhole) this.stop();
    } catch (error) {
      if (signal.aborted) return;
      this.stop();
      showLine("speech.failed_why", { why: sentenceOf(error) });
    }
  }

  /**
   * @param {string} sentence
   * @param {AbortSignal} signal
   */
  async #utter(sentence, signal) {
    if (!("speechSynthesis" in window) || (await voices()).length === 0) {
      if (signal.aborted) return;
      this.stop();
      showLine(this.hasBoard ? "speech.no_voice_here" : "speech.no_voice");
      return;
    }
    if (signal.aborted) return;
    const utterance = new SpeechSynthesisUtterance(sentence);
    this.#utterance = utterance;
    // A sentence without kana is Japanese in a Japanese text.
    utterance.lang = languageOf(/\p{Script=Han}/u.test(sentence) ? this.#all : sentence, navigator.languages);
    const fitting = speechSynthesis.getVoices().filter(({ lang }) => lang.slice(0, 2).toLowerCase() === utterance.lang.slice(0, 2));
    // One of this device: others send the text to their maker.
    const voice = fitting.find(({ localService }) => localService) ?? fitting[0];
    if (voice) utterance.voice = voice;
    await new Promise((resolve, reject) => {
      signal.addEventListener("abort", resolve);
      utterance.addEventListener("end", resolve);
      utterance.addEventListener("error", ({ error }) =>
        error === "canceled" || error === "interrupted" ? resolve(undefined) : reject(new Error(error)),
      );
      speechSynthesis.speak(this.#utterance ?? utterance);
    }).catch(() => {
      this.stop();
      showLine("speech.failed");
    });
  }

  /**
   * @param {string} sentence
   * @param {AbortSignal} signal
   */
  async #soundOf(sentence, signal) {
    const content = await api.sound("/v1/audio/speech", { input: sentence, response_format: "wav" }, signal);
    const view = new DataView(content);
    const samples = new Float32Array(Math.floor(Math.max(0, content.byteLength - HEADER_BYTES) / 2));
    for (let place = 0; place < samples.length; place += 1) samples[place] = view.getInt16(HEADER_BYTES + 2 * place, true) / 32768;
    // The board writes a header of this length, and one channel of 16 bits.
    const sound = new AudioBuffer({ length: Math.max(1, samples.length), sampleRate: view.getUint32(24, true) });
    sound.copyToChannel(samples, 0);
    return sound;
  }

  /**
   * @param {AudioBuffer} sound
   * @param {AbortSignal} signal
   */
  #play(sound, signal) {
    const audio = (this.#audio ??= new AudioContext());
    const source = new AudioBufferSourceNode(audio, { buffer: sound });
    source.connect(audio.destination);
    return new Promise((resolve) => {
      source.addEventListener("ended", resolve);
      signal.addEventListener("abort", () => source.stop());
      source.start();
    });
  }
}

/** The voices of this browser; none where it has none. */
async function voices() {
  const known = speechSynthesis.getVoices();
  if (known.length > 0) return known;
  await new Promise((resolve) => {
    speechSynthesis.addEventListener?.("voiceschanged", resolve, { once: true });
    setTimeout(resolve, VOICES_MS);
  });
  return speechSynthesis.getVoices();
}

/** The page reads one answer at a time. */
export const speaker = new Speaker();
