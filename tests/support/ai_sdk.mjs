// A question to the AI SDK with a tool, and what came of it as JSON:
//     node ai_sdk.mjs FOLDER URL QUESTION
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

const [folder, url, prompt] = process.argv.slice(2);
const require = createRequire(`${folder}/package.json`);
const load = (name) => import(pathToFileURL(require.resolve(name)));
const { generateText, tool, stepCountIs } = await load("ai");
const { createOpenAICompatible } = await load("@ai-sdk/openai-compatible");
const { z } = await load("zod");

globalThis.AI_SDK_LOG_WARNINGS = false;
const board = createOpenAICompatible({ name: "board", baseURL: `${url}/v1`, apiKey: "none" });
const look = tool({ description: "Looks.", inputSchema: z.object({}), execute: async () => "a cat" });
const answer = await generateText({
  model: board("parrot"),
  tools: { look },
  stopWhen: stepCountIs(3),
  prompt,
  maxRetries: 0,
});
console.log(answer.text);
