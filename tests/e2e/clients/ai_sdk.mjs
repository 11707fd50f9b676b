// Vercel's AI SDK over its OpenAI-compatible provider, as its users write it. Prints one JSON document.
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { generateText, jsonSchema, streamText, tool } from "ai";

const { MODEL, PROMPT, OPENAI_BASE_URL, OPENAI_API_KEY } = process.env;
const provider = createOpenAICompatible({
  name: "silentswarm", baseURL: OPENAI_BASE_URL, apiKey: OPENAI_API_KEY, includeUsage: true,
});
const base = { model: provider(MODEL), prompt: PROMPT, temperature: 0, maxOutputTokens: 48 };

const whole = await generateText(base);
let streamed = "";
const stream = streamText(base);
for await (const part of stream.textStream) streamed += part;
const inputSchema = jsonSchema({
  type: "object", properties: { city: { type: "string", maxLength: 12 } }, required: ["city"], additionalProperties: false,
});
const called = await generateText({ ...base, tools: { get_weather: tool({ inputSchema }) }, toolChoice: "required" });

console.log(JSON.stringify({
  whole: whole.text,
  streamed,
  usage: [whole.usage.totalTokens, (await stream.usage).totalTokens],
  tool: { name: called.toolCalls[0].toolName, arguments: called.toolCalls[0].input },
}));
