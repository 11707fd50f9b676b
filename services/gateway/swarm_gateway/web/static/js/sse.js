// Reads server-sent events from a response: data and comments, bounded in size and in silence. Knows no event's meaning.

import { ApiError } from "./api.js";

// The gateway writes a comment into every 10 s of silence unless set otherwise.
const SILENCE_MS = 120_000;
const EVENT_CHARS_MAX = 4 * 2 ** 20;
const LINE_END = /\r\n|\n|\r/;

/**
 * Every event as {data, comment}; one of the two is "".
 * Throws ApiError when the connection breaks, is silent for too long, or an event is too large.
 */
export async function* readEvents(response) {
  const reader = response.body.getReader();
  const decoder = new TextDecoder();
  let text = "";
  try {
    for (;;) {
      const { done, value } = await readPiece(reader);
      text += decoder.decode(value, { stream: !done });
      const blocks = text.split("\n\n");
      text = blocks.pop();
      if (text.length > EVENT_CHARS_MAX) throw new ApiError(0, "an event of the reply is too large");
      for (const block of blocks) yield eventOf(block);
      if (done) return;
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}

async function readPiece(reader) {
  let timer;
  const silence = new Promise((_, reject) => {
    const words = `the gateway said nothing for ${SILENCE_MS / 1000} s`;
    timer = setTimeout(() => reject(new ApiError(0, words)), SILENCE_MS);
  });
  try {
    return await Promise.race([reader.read(), silence]);
  } catch (error) {
    if (error instanceof ApiError || error.name === "AbortError") throw error;
    throw new ApiError(0, "the connection broke off");
  } finally {
    clearTimeout(timer);
  }
}

function eventOf(block) {
  const data = [];
  const comments = [];
  for (const line of block.split(LINE_END)) {
    if (line.startsWith("data:")) data.push(line.slice(5).replace(/^ /, ""));
    else if (line.startsWith(":")) comments.push(line.slice(1).trim());
  }
  return { data: data.join("\n"), comment: data.length ? "" : comments.join(" ") };
}
