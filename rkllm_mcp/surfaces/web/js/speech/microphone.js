/**
 * The button that lets a person speak their question. Each part of it goes to the board as a recording when the person pauses,
 * and comes back as text for the field, where it can be changed. In a spoken conversation the question is sent instead, the
 * answer is read aloud, and the next question is listened for. Where a page may not listen the button says why.
 */
import { api } from "../access.js";
import { byId, h, hasNoKeys, hide, tell } from "../dom.js";
import { say } from "../i18n.js";
import { prefer, preference } from "../preferences.js";
import { sentenceOf } from "../problems.js";
import { Recording } from "./recording.js";
import { speaker } from "./speaker.js";

const RECORDER = new URL("recorder.js", import.meta.url).pathname;
// Loud speech fills the meter.
const FULL_LEVEL = 0.25;

export class Microphone {
  /** whether the board has a program that recognises speech */
  hasBoard = false;
  /** @type {AbortController | null} ends what is under way: the recording, the wait for its text, the conversation */
  #run = null;
  /** @type {Recording | null} */
  #recording = null;
  /** ends the recording; its text is wanted */
  #finish = () => {};
  /** @type {string[]} the parts of the question that are in the field */
  #written = [];
  #button = byId("microphone");
  #line = byId("listening-line");
  #meter = /** @type {HTMLMeterElement} */ (byId("listening-level"));
  #converse = byId("converse");
  #told;

  /**
   * @param {{heard: (text: string) => void, unheard: (text: string) => void, ask: () => Promise<boolean>}} told gets the
   *   text of each part of a recording, and those that the person takes back; `ask` sends the question, and returns when it is
   *   answered whether it was
   */
  constructor(told) {
    this.#told = told;
    this.#button.addEventListener("click", () => void this.#press());
    byId("listening-close").addEventListener("click", () => {
      this.cancel();
      this.#button.focus();
    });
    this.#converse.addEventListener("click", () => {
      prefer("converse", this.#isConversation ? "" : "on");
      this.#showConversation();
    });
    this.#showConversation();
  }

  /** Whether it listens, its text is on its way, or a spoken conversation goes on. */
  get isOn() {
    return this.#run !== null;
  }

  get #isConversation() {
    return preference("converse") === "on";
  }

  /** End it without a text, and a spoken conversation with what is read. */
  cancel() {
    if (speaker.readsAll) speaker.stop();
    for (const text of this.#written.splice(0)) this.#told.unheard(text);
    this.#run?.abort();
    this.#over();
    hide(byId("listening"), true);
  }

  async #press() {
    if (this.#run) {
      if (this.#recording) this.#finish();
      // The person wants to speak: what is read has been heard enough of.
      else if (speaker.readsAll && speaker.isReading) speaker.stop();
      else this.cancel();
      return;
    }
    if (!isSecureContext || !navigator.mediaDevices) this.#say(say("mic.plain"));
    else if (!this.hasBoard) this.#say(say("mic.missing"));
    else await this.#listen();
  }

  async #listen() {
    // It would hear itself.
    speaker.stop();
    const run = new AbortController();
    this.#run = run;
    this.#button.setAttribute("aria-pressed", "true");
    this.#showConversation();
    try {
      do {
        const isHeard = await this.#hear(run.signal);
        if (run.signal.aborted) return;
        if (!isHeard) {
          this.#say(say("mic.nothing"));
          return;
        }
        this.#written = [];
      } while (this.#isConversation && (await this.#answered(run.signal)));
      if (!run.signal.aborted) hide(byId("listening"), true);
    } catch (error) {
      if (!run.signal.aborted) this.#say(problem(error));
    } finally {
      if (this.#run === run) this.#over();
    }
  }

  /**
   * Listen to one question and write it into the field, each part when the person pauses.
   *
   * @param {AbortSignal} signal
   * @returns {Promise<boolean>} whether words were heard
   */
  async #hear(signal) {
    this.#meter.value = 0;
    this.#written = [];
    this.#say(say("mic.asking"));
    /** @type {Promise<void>} */
    let writing = Promise.resolve();
    const write = (/** @type {Recording} */ recording) => {
      const file = new File([recording.takeWav()], "question.wav", { type: "audio/wav" });
      writing = writing.then(() => this.#write(file, signal));
      // Its failure is met when the recording is over.
      writing.catch(() => undefined);
    };
    const recording = await this.#record(signal, write);
    if (signal.aborted) return false;
    if (recording.hasUntakenSpeech) write(recording);
    if (recording.hasSpeech) this.#say(say("mic.writing"));
    await writing;
    return this.#written.length > 0;
  }

  /**
   * @param {File} file
   * @param {AbortSignal} signal
   */
  async #write(file, signal) {
    if (signal.aborted) return;
    const { text } = await api.upload("/v1/audio/transcriptions", file);
    if (signal.aborted || !text) return;
    this.#written.push(text);
    this.#told.heard(text);
  }

  /**
   * Send the question, and wait until its answer was read aloud.
   *
   * @param {AbortSignal} signal
   * @returns {Promise<boolean>} whether the conversation goes on
   */
  async #answered(signal) {
    speaker.readsAll = true;
    this.#say(say(hasNoKeys() ? "mic.answering_touch" : "mic.answering"));
    const isAnswered = await this.#told.ask();
    if (signal.aborted || !isAnswered) return false;
    if (speaker.isReading) this.#say(say(hasNoKeys() ? "mic.reading_touch" : "mic.reading"));
    await speaker.silence();
    return !signal.aborted && this.#isConversation;
  }

  /**
   * Record until the person is silent, presses the button again, or leaves it out.
   *
   * @param {AbortSignal} signal
   * @param {(recording: Recording) => void} paused called in each pause
   * @returns {Promise<Recording>}
   */
  async #record(signal, paused) {
    const stream = await navigator.mediaDevices.getUserMedia({ audio: { channelCount: 1 } });
    const audio = new AudioContext();
    try {
      await audio.audioWorklet.addModule(RECORDER);
      const recorder = new AudioWorkletNode(audio, "recorder");
      const recording = new Recording(audio.sampleRate);
      if (signal.aborted) return recording;
      this.#recording = recording;
      await new Promise((resolve) => {
        this.#finish = () => resolve(undefined);
        signal.addEventListener("abort", resolve);
        recorder.port.addEventListener("message", ({ data }) => {
          if (recording.add(data)) resolve(undefined);
          else this.#show(recording);
          if (recording.isPause) paused(recording);
        });
        // A microphone that is pulled out ends it as well.
        for (const track of stream.getTracks()) track.addEventListener("ended", resolve);
        recorder.port.start();
        audio.createMediaStreamSource(stream).connect(recorder);
        void audio.resume();
        this.#show(recording);
      });
      return recording;
    } finally {
      this.#recording = null;
      for (const track of stream.getTracks()) track.stop();
      void audio.close();
    }
  }

  /** @param {Recording} recording */
  #show({ level }) {
    if (!this.#run || this.#run.signal.aborted) return;
    this.#say(say(hasNoKeys() ? "mic.listening_touch" : "mic.listening"), true);
    this.#meter.value = Math.min(1, Math.sqrt(level / FULL_LEVEL));
  }

  /**
   * @param {HTMLElement | string} words
   * @param {boolean} [hasLevel]
   */
  #say(words, hasLevel = false) {
    hide(byId("listening"), false);
    hide(this.#meter, !hasLevel);
    hide(this.#converse, !this.isOn);
    tell(this.#line, typeof words === "string" ? h("span", {}, words) : words);
  }

  #showConversation() {
    this.#converse.setAttribute("aria-pressed", String(this.#isConversation));
    speaker.readsAll = this.isOn && this.#isConversation;
  }

  #over() {
    this.#run = null;
    this.#recording = null;
    this.#written = [];
    speaker.readsAll = false;
    this.#button.setAttribute("aria-pressed", "false");
    hide(this.#converse, true);
  }
}

/** @param {unknown} error */
function problem(error) {
  if (!(error instanceof DOMException)) return sentenceOf(error);
  if (error.name === "NotAllowedError" || error.name === "SecurityError") return say("mic.refused");
  return error.name === "NotFoundError" ? say("mic.none") : say("mic.failed", { why: error.message });
}
