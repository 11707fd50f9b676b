// The openai package of npm, as its users write it. Prints one JSON document of what came back.
import OpenAI from "openai";

const { MODEL, PROMPT } = process.env;
const client = new OpenAI();
const messages = [{ role: "user", content: PROMPT }];
const base = { model: MODEL, messages, temperature: 0, max_tokens: 48 };
const tools = [
  {
    type: "function",
    function: {
      name: "get_weather",
      parameters: {
        type: "object",
        properties: { city: { type: "string", maxLength: 12 } },
        required: ["city"],
        additionalProperties: false,
      },
    },
  },
];

const models = [];
for await (const model of client.models.list()) models.push(model.id);
const whole = await client.chat.completions.create(base);
let streamed = "";
for await (const chunk of await client.chat.completions.create({ ...base, stream: true }))
  streamed += chunk.choices[0].delta.content ?? "";
const runner = client.chat.completions.stream({ ...base, tools, tool_choice: "required", parallel_tool_calls: false });
const call = (await runner.finalChatCompletion()).choices[0].message.tool_calls[0];
const response = await client.responses.create({ model: MODEL, input: PROMPT, temperature: 0, max_output_tokens: 48 });
let responseStreamed = "";
const events = await client.responses.create({
  model: MODEL, input: PROMPT, temperature: 0, max_output_tokens: 48, stream: true,
});
for await (const event of events) if (event.type === "response.output_text.delta") responseStreamed += event.delta;
let error = "no error";
try {
  await client.chat.completions.create({ ...base, model: "no-such-model" });
} catch (failure) {
  error = failure.constructor.name;
}
// Leaving in mid-stream must be quiet on both ends.
const left = await client.chat.completions.create({ ...base, max_tokens: 400, min_tokens: 400, stream: true });
for await (const chunk of left) break;

console.log(JSON.stringify({
  models,
  whole: whole.choices[0].message.content,
  streamed,
  tool: { name: call.function.name, arguments: JSON.parse(call.function.arguments) },
  response: response.output_text,
  response_streamed: responseStreamed,
  errors: { model: error },
}));
