// Programs that use the JavaScript clients of OpenAI's and Anthropic's APIs, and print as JSON what came of it:
//     node js_clients.mjs FOLDER URL KEY
// FOLDER is where scripts/clients_js has installed them.
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

const [folder, url, key] = process.argv.slice(2);
const require = createRequire(`${folder}/package.json`);
const load = (name) => import(pathToFileURL(require.resolve(name)));
const OpenAI = (await load("openai")).default;
const Anthropic = (await load("@anthropic-ai/sdk")).default;
const { generateText, streamText, tool, stepCountIs, Output } = await load("ai");
const { createOpenAI } = await load("@ai-sdk/openai");
const { createAnthropic } = await load("@ai-sdk/anthropic");
const { z } = await load("zod");

globalThis.AI_SDK_LOG_WARNINGS = false;
const CITY = { type: "object", properties: { city: { type: "string" } }, required: ["city"] };
const model = "parrot";
const failure = async (work) => {
  try {
    await work();
  } catch (error) {
    return [error.status ?? null, String(error.message)];
  }
};

async function openai() {
  const client = new OpenAI({ baseURL: `${url}/v1`, apiKey: key, maxRetries: 0 });
  const ask = (input, more) => client.responses.stream({ model, input, ...more }).finalResponse();
  const tools = [{ type: "function", name: "get_weather", parameters: CITY, strict: false }];
  const called = await ask("Weather in Oslo and Rome", { tools });
  const calls = called.output.filter((item) => item.type === "function_call");
  const results = calls.map((call) => ({ type: "function_call_output", call_id: call.call_id, output: "warm" }));
  return {
    whole: (await client.responses.create({ model, input: "hello from ann" })).output_text,
    calls: calls.map((call) => [call.name, JSON.parse(call.arguments)]),
    answer: (await ask(results, { tools, previous_response_id: called.id })).output_text,
    model: await failure(() => ask("x", { model: "nobody" })),
  };
}

async function anthropic() {
  const client = new Anthropic({ baseURL: url, apiKey: key, maxRetries: 0 });
  const ask = (content, more) =>
    client.messages.stream({ model, max_tokens: 100, messages: [{ role: "user", content }], ...more }).finalMessage();
  const called = await ask("Weather in Oslo and Rome", { tools: [{ name: "get_weather", input_schema: CITY }] });
  const thought = await ask("think", { thinking: { type: "enabled", budget_tokens: 1024 } });
  return {
    whole: (await ask("hello from ann")).content[0].text,
    calls: called.content.filter((block) => block.type === "tool_use").map((call) => [call.name, call.input]),
    stop: called.stop_reason,
    thinking: thought.content.map((block) => (block.thinking ?? block.text).trim()),
    model: await failure(() => ask("x", { model: "nobody" })),
    later: await failure(() => ask("fail later")),
  };
}

// Vercel's AI SDK, with the API that its provider asks by default.
async function ai(provider, thinking) {
  const get_weather = tool({
    description: "Weather",
    inputSchema: z.object({ city: z.string() }),
    execute: async ({ city }) => `${city} is warm`,
  });
  const shared = { model: provider(model), maxRetries: 0 };
  const tools = { tools: { get_weather }, stopWhen: stepCountIs(3) };
  const first = [{ role: "user", content: "hello from ann" }];
  const hello = await generateText({ ...shared, messages: first });
  const asked = [...first, ...hello.response.messages, { role: "user", content: "hello from bob" }];
  const thought = streamText({ ...shared, prompt: "think", providerOptions: thinking });
  const trip = Output.object({ schema: z.object({ city: z.string(), days: z.number() }) });
  let later = null;
  const failed = streamText({ ...shared, prompt: "fail later", onError: ({ error }) => (later = error.message) });
  await failed.consumeStream({ onError: () => {} });
  return {
    tools: (await generateText({ ...shared, ...tools, prompt: "Weather in Oslo" })).text,
    again: (await generateText({ ...shared, messages: asked })).text,
    thinking: [(await thought.reasoningText).trim(), await thought.text],
    form: (await generateText({ ...shared, prompt: "trip to Oslo", output: trip })).output,
    later,
  };
}

const told = {
  openai: await openai(),
  anthropic: await anthropic(),
  "ai openai": await ai(createOpenAI({ baseURL: `${url}/v1`, apiKey: key }), {
    openai: { reasoningEffort: "low", reasoningSummary: "auto", forceReasoning: true },
  }),
  "ai anthropic": await ai(createAnthropic({ baseURL: `${url}/v1`, apiKey: key }), {
    anthropic: { thinking: { type: "enabled", budgetTokens: 1024 } },
  }),
};
console.log(JSON.stringify(told));
