import assert from "node:assert/strict";
import test from "node:test";
import { Answer, bare } from "../../../rkllm_mcp/surfaces/web/js/chat/answer.js";
import { Sentences } from "../../../rkllm_mcp/surfaces/web/js/chat/sentences.js";

const END = { kind: "end", reason: "answered", error: null };
const CALL = {
  kind: "tool_call",
  id: "1",
  name: "get_weather",
  server: "weather",
  arguments: { place: "東京" },
  repaired: true,
};
const RESULT = {
  kind: "tool_result",
  id: "1",
  name: "get_weather",
  is_error: false,
  text: "fine",
  seconds: 0.5,
  truncated: true,
};

/** @param {any[]} events */
function after(events) {
  const answer = new Answer();
  for (const event of events) answer.take(event);
  return answer;
}

test("pieces of one kind become one segment, and a call between them makes two", () => {
  const { segments, text } = after([
    { kind: "text", text: "a" },
    { kind: "text", text: "b" },
    CALL,
    { kind: "text", text: "c" },
  ]);
  assert.deepEqual(
    segments.map((segment) => segment.kind),
    ["text", "call", "text"],
  );
  assert.equal(text, "abc");
});

test("a call has its progress, its result and its end", () => {
  const progress = { kind: "tool_progress", id: "1", progress: 3, total: 10, message: "looking" };
  const { segments } = after([CALL, progress, RESULT, END]);
  assert.deepEqual(segments, [
    {
      kind: "call",
      id: "1",
      name: "get_weather",
      server: "weather",
      arguments: { place: "東京" },
      repaired: true,
      question: null,
      answered: null,
      progress: { progress: 3, total: 10, message: "looking" },
      result: { is_error: false, text: "fine", seconds: 0.5, truncated: true, ruling: "", omitted: false },
      isRunning: true,
      isOver: true,
    },
  ]);
});

test("a call runs from the line that says so, one call for each line", () => {
  const calling = { kind: "status", text: "[MCP: Calling tool 'get_weather']", about: "calling", values: { name: "get_weather" } };
  const approval = { kind: "approval", id: "q", name: "get_weather", arguments: {}, reason: "It changes something." };
  const answer = after([CALL, { ...CALL, id: "2" }, { kind: "status", text: "[MCP: Detected 2 tool calls]", about: "detected" }, approval]);
  const running = () => answer.segments.map((segment) => segment.kind === "call" && segment.isRunning);
  assert.deepEqual(running(), [false, false, false]);
  const changed = answer.take(calling);
  assert.deepEqual(changed, [answer.segments[0]]);
  assert.deepEqual(running(), [true, false, false]);
  answer.take(calling);
  assert.deepEqual(running(), [true, true, false]);
  assert.deepEqual(answer.take(calling), []);
});

test("calls with the same id in different rounds keep their own results", () => {
  const { segments } = after([CALL, RESULT, CALL, { ...RESULT, text: "later" }]);
  assert.deepEqual(
    segments.map((segment) => segment.kind === "call" && segment.result?.text),
    ["fine", "later"],
  );
});

test("the end closes what was open, and says which that were", () => {
  const answer = after([CALL, { kind: "approval", id: "q1", name: "x", arguments: {}, reason: "r" }]);
  const closed = answer.take({ kind: "end", reason: "cancelled", error: null });
  assert.deepEqual(
    closed.map((segment) => segment.kind),
    ["call", "question"],
  );
  assert.deepEqual(answer.ending, { reason: "cancelled", error: null });
});

test("the position in the queue holds until something else happens", () => {
  assert.equal(
    after([
      { kind: "queued", position: 3 },
      { kind: "status", text: "[MCP: x]" },
    ]).position,
    3,
  );
  assert.equal(
    after([
      { kind: "queued", position: 3 },
      { kind: "thinking", text: "x" },
    ]).position,
    null,
  );
});

test("the costs of all rounds are added, and the prompt is that of the last", () => {
  const usage = {
    kind: "usage",
    prompt_tokens: 100,
    prefilled_tokens: 90,
    cached_tokens: 10,
    generated_tokens: 5,
    prefill_ms: 9,
    decode_ms: 50,
    time_to_first_token_ms: 12,
  };
  const { costs } = after([usage, { ...usage, prompt_tokens: 130, time_to_first_token_ms: 7, corrections: 3 }]);
  assert.deepEqual(costs, {
    prompt: 130,
    prefilled: 180,
    cached: 20,
    generated: 10,
    prefill_ms: 18,
    decode_ms: 100,
    first_ms: 12,
    last: usage.generated_tokens,
    corrections: 3,
  });
});

test("a kind that the page does not know changes nothing", () => {
  assert.deepEqual(after([{ kind: "hologram", shape: "cube" }]).segments, []);
});

test("what happens now is what the events say, not what the board said last", () => {
  const line = (/** @type {string} */ text, about = "", values = {}) => ({ kind: "status", text, about, values });
  const doing = (/** @type {any[]} */ ...events) => {
    const { phrase, values, words } = after(events).doing;
    return [phrase, ...Object.values(values ?? {}), words];
  };
  const calling = line("[MCP: Calling tool 'get_weather']", "calling", { name: "get_weather" });
  const completed = line("[MCP: Tool 'get_weather' completed]", "completed");
  assert.deepEqual(doing(), ["chat.working", ""]);
  assert.deepEqual(doing(CALL, calling), ["doing.using", "get_weather", ""]);
  assert.deepEqual(doing(CALL, calling, completed, RESULT), ["doing.writing", ""]);
  assert.deepEqual(doing(CALL, calling, line("[MCP: Tool 'get_weather' failed: no]", "failed"), RESULT), ["doing.writing", ""]);
  assert.deepEqual(doing(RESULT, { kind: "thinking", text: "Hm" }), ["thinking.now", ""]);
  assert.deepEqual(doing(line("[NPU: Loading model 'owl']", "loading", { name: "owl" })), ["doing.loading", "owl", ""]);
  assert.deepEqual(doing(line("[MCP: Waiting …]", "waiting", { names: "'a', 'b'" })), ["doing.connecting", "a, b", ""]);
  assert.deepEqual(doing(line("[NPU: Loading model 'owl']", "loading", { name: "owl" }), CALL), ["doing.writing", ""], "it is over");
  assert.deepEqual(doing(line("[X: a line of its own]")), ["chat.working", "X: a line of its own"]);
});

test("a status line is shown without its brackets", () => {
  assert.equal(bare("[MCP: Calling tool 'get_weather']"), "Calling tool 'get_weather'");
  assert.equal(bare("[Context: cut]"), "Context: cut");
});

test("sentences are said once, when they are complete, without signs and without code", () => {
  const sentences = new Sentences();
  const said = [
    ..."明日は**晴れ**です。気温は 3.14 度",
    ...["です！\n# Title\n", "```py\nprint(1)\n```\n", "- See [the page](https://e.org/x). And"],
  ].flatMap((piece) => sentences.feed(piece));
  assert.deepEqual(
    [...said, ...sentences.finish()],
    ["明日は晴れです。", "気温は 3.14 度です！", "Title", "See the page.", "And"],
  );
});
