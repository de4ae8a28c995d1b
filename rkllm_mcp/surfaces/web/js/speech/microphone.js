/**
 * The button that lets a person speak their question. What is heard goes to the board as a recording when they are silent,
 * and comes back as text for the field, where it can be changed. Where a page may not listen the button says why.
 */
import { api } from "../access.js";
import { byId, h, hide, tell } from "../dom.js";
import { say } from "../i18n.js";
import { sentenceOf } from "../problems.js";
import { Recording } from "./recording.js";
import { speaker } from "./speaker.js";

const RECORDER = new URL("recorder.js", import.meta.url).pathname;
// Loud speech fills the meter.
const FULL_LEVEL = 0.25;

export class Microphone {
  /** whether the board has a program that recognises speech */
  hasBoard = false;
  /** @type {AbortController | null} ends what is under way: the recording, or the wait for its text */
  #run = null;
  /** @type {Recording | null} */
  #recording = null;
  /** ends the recording; its text is wanted */
  #finish = () => {};
  #button = byId("microphone");
  #line = byId("listening-line");
  #meter = /** @type {HTMLMeterElement} */ (byId("listening-level"));
  #told;

  /** @param {{heard: (text: string) => void}} told gets the text of a recording */
  constructor(told) {
    this.#told = told;
    this.#button.addEventListener("click", () => void this.#press());
    byId("listening-close").addEventListener("click", () => {
      this.cancel();
      this.#button.focus();
    });
  }

  /** Whether it listens, or its text is on its way. */
  get isOn() {
    return this.#run !== null;
  }

  /** End it without a text. */
  cancel() {
    this.#run?.abort();
    this.#over();
    hide(byId("listening"), true);
  }

  async #press() {
    if (this.#run) {
      if (this.#recording) this.#finish();
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
    this.#meter.value = 0;
    this.#say(say("mic.asking"));
    try {
      const recording = await this.#record(run.signal);
      if (run.signal.aborted) return;
      if (!recording.hasSpeech) {
        this.#say(say("mic.nothing"));
        return;
      }
      this.#say(say("mic.writing"));
      const file = new File([recording.wav()], "question.wav", { type: "audio/wav" });
      const { text } = await api.upload("/v1/audio/transcriptions", file);
      if (run.signal.aborted) return;
      if (text) this.#told.heard(text);
      if (text) hide(byId("listening"), true);
      else this.#say(say("mic.nothing"));
    } catch (error) {
      if (!run.signal.aborted) this.#say(problem(error));
    } finally {
      if (this.#run === run) this.#over();
    }
  }

  /**
   * Record until the person is silent, presses the button again, or leaves it out.
   *
   * @param {AbortSignal} signal
   * @returns {Promise<Recording>}
   */
  async #record(signal) {
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
    this.#say(say("mic.listening"), true);
    this.#meter.value = Math.min(1, Math.sqrt(level / FULL_LEVEL));
  }

  /**
   * @param {HTMLElement | string} words
   * @param {boolean} [hasLevel]
   */
  #say(words, hasLevel = false) {
    hide(byId("listening"), false);
    hide(this.#meter, !hasLevel);
    tell(this.#line, typeof words === "string" ? h("span", {}, words) : words);
  }

  #over() {
    this.#run = null;
    this.#recording = null;
    this.#button.setAttribute("aria-pressed", "false");
  }
}

/** @param {unknown} error */
function problem(error) {
  if (!(error instanceof DOMException)) return sentenceOf(error);
  if (error.name === "NotAllowedError" || error.name === "SecurityError") return say("mic.refused");
  return error.name === "NotFoundError" ? say("mic.none") : say("mic.failed", { why: error.message });
}
