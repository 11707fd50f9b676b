// Asks the gateway this page came from, and nobody else. Failures become ApiErrors; words for people are in words.js.

import { token } from "./token.js";

const ANSWER_MS = 20_000;
// The gateway opens a stream within its keep-alive time, 10 s unless set otherwise.
const HEADERS_MS = 120_000;
const MESSAGE_CHARS_MAX = 2_000;

/** A request that failed. status 0: nobody answered. code: the server's word. hasBegun: after a part of the reply. */
export class ApiError extends Error {
  constructor(status, message, { code = "", retryAfterS = 0, mayRetry = true, hasBegun = false } = {}) {
    super(message.slice(0, MESSAGE_CHARS_MAX));
    this.status = status;
    this.code = code;
    this.retryAfterS = retryAfterS;
    this.mayRetry = mayRetry;
    this.hasBegun = hasBegun;
  }
}

/** An address below this page's. A proxy may serve the page under any path. */
export function address(path) {
  return new URL(path, new URL(".", window.location.href)).href;
}

/** A path of a model's JSON route; its id may contain slashes. */
export function modelPath(modelId, what) {
  return `api/v1/models/${modelId.split("/").map(encodeURIComponent).join("/")}/${what}`;
}

/** One JSON answer. Throws ApiError, and AbortError when the signal says so. */
export async function askJson(path, { body, signal } = {}) {
  const limit = AbortSignal.timeout(ANSWER_MS);
  try {
    const response = await ask(path, body, signal ? AbortSignal.any([signal, limit]) : limit);
    return await response.json();
  } catch (error) {
    throwIfAborted(signal);
    throw error instanceof ApiError ? error : new ApiError(0, "the answer of the gateway could not be read");
  }
}

/** An open stream of events; what follows its headers is bounded by whoever reads it. Throws as askJson does. */
export async function askStream(path, body, signal) {
  const late = new AbortController();
  const timer = setTimeout(() => late.abort(), HEADERS_MS);
  try {
    return await ask(path, body, AbortSignal.any([signal, late.signal]));
  } catch (error) {
    throwIfAborted(signal);
    throw error;
  } finally {
    clearTimeout(timer);
  }
}

/** What an error document of the API says. */
export function errorOf(status, document, { retryAfterS = 0, mayRetry = true, hasBegun = false } = {}) {
  const said = document?.error ?? {};
  const message = typeof said.message === "string" ? said.message : `the gateway answered ${status}`;
  return new ApiError(status, message, { code: String(said.code ?? ""), retryAfterS, mayRetry, hasBegun });
}

async function ask(path, body, signal) {
  const headers = { Accept: "application/json, text/event-stream" };
  if (token()) headers.Authorization = `Bearer ${token()}`;
  if (body !== undefined) headers["Content-Type"] = "application/json";
  let response;
  try {
    response = await fetch(address(path), {
      method: body === undefined ? "GET" : "POST",
      body: body === undefined ? undefined : JSON.stringify(body),
      headers,
      signal,
      credentials: "omit",
      cache: "no-store",
      redirect: "error",
      referrerPolicy: "no-referrer",
    });
  } catch {
    throw new ApiError(0, signal.aborted ? "the gateway did not answer in time" : "the gateway cannot be reached");
  }
  if (response.ok) return response;
  throw await failureOf(response);
}

async function failureOf(response) {
  const document = await response.json().catch(() => null);
  const seconds = Number(response.headers.get("Retry-After"));
  return errorOf(response.status, document, {
    retryAfterS: Number.isFinite(seconds) && seconds > 0 ? Math.min(seconds, 300) : 0,
    mayRetry: response.headers.get("x-should-retry") !== "false",
  });
}

function throwIfAborted(signal) {
  if (signal?.aborted) throw new DOMException("stopped", "AbortError");
}
