// One try at one reply: the chat request, and its stream as steps. Tries nothing twice and draws nothing.

import { ApiError, askStream, errorOf } from "./api.js";
import { readEvents } from "./sse.js";

const STATUSES = {
  invalid_api_key: 401,
  permission_denied: 403,
  model_not_found: 404,
  overloaded: 429,
  internal: 500,
  deadline: 504,
};
const WAITING = /^waiting, position (\d+)(?:: (.*))?$/s;

/**
 * The steps of a reply:
 *   {waiting: {position, reason}}  a place in the queue; position 0 while it is not told
 *   {text} and {reasoning}         more of either
 *   {end: {finish, usage, timing}} the end of a whole reply
 * Throws ApiError (hasBegun after the first text), and AbortError when the signal says so: the gateway then ends the
 * reply on every stage.
 */
export async function* steps(request, signal) {
  const body = { ...request, stream: true, stream_options: { include_usage: true } };
  const response = await askStream("v1/chat/completions", body, signal);
  const end = { finish: "", usage: null, timing: null };
  let hasBegun = false;
  try {
    for await (const { data, comment } of readEvents(response)) {
      const waiting = WAITING.exec(comment);
      if (waiting) yield { waiting: { position: Number(waiting[1]), reason: waiting[2] ?? "" } };
      if (data === "[DONE]") {
        yield { end };
        return;
      }
      if (!data) continue;
      for (const step of stepsOf(parsed(data), end)) {
        hasBegun = true;
        yield step;
      }
    }
    throw new ApiError(0, "the reply broke off before its end");
  } catch (error) {
    if (signal.aborted) throw new DOMException("stopped", "AbortError");
    if (error instanceof ApiError) error.hasBegun ||= hasBegun;
    throw error;
  }
}

function* stepsOf(chunk, end) {
  if (chunk.error) throw errorOf(statusOf(chunk.error), chunk);
  const choice = chunk.choices?.[0];
  if (chunk.usage) end.usage = chunk.usage;
  if (chunk.swarm?.timing) end.timing = chunk.swarm.timing;
  if (choice?.finish_reason) end.finish = String(choice.finish_reason);
  const { reasoning_content: reasoning, content } = choice?.delta ?? {};
  if (typeof reasoning === "string" && reasoning) yield { reasoning };
  if (typeof content === "string" && content) yield { text: content };
}

/** The status an error would have had before the stream began. */
function statusOf(error) {
  return STATUSES[error.code] ?? (error.type === "server_error" ? 503 : 400);
}

function parsed(data) {
  try {
    return Object(JSON.parse(data));
  } catch {
    throw new ApiError(0, "an event of the reply could not be read");
  }
}
