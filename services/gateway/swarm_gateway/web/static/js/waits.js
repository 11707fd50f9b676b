// A reply through everything that passes by itself: a full line, a leader that is away, a fellow that is not back yet.

import { ApiError, askJson, modelPath } from "./api.js";
import { steps } from "./reply.js";
import { capitalised, explain, missing, stateWord } from "./words.js";

const TRIES_MAX = 30;
const FIRST_WAIT_S = 2;
const LONGEST_WAIT_S = 30;
const STATUS_EVERY_MS = 2_000;
const READY_WITHIN_MS = 30 * 60_000;

/** Wakes whoever waits: the person pressed "Try now". */
export class Nudge {
  #wake = () => {};

  /** Ends the wait that runs. */
  now() {
    this.#wake();
  }

  /** Waits. Throws AbortError when the signal says so. */
  wait(ms, signal) {
    return new Promise((resolve, reject) => {
      const end = (settle, outcome) => {
        clearTimeout(timer);
        signal.removeEventListener("abort", stop);
        settle(outcome);
      };
      const stop = () => end(reject, new DOMException("stopped", "AbortError"));
      const timer = setTimeout(() => end(resolve), ms);
      this.#wake = () => end(resolve);
      if (signal.aborted) stop();
      else signal.addEventListener("abort", stop);
    });
  }
}

/**
 * The steps of a reply (reply.js), {sent: true} before each try, and between tries
 * {pause: {title, advice, details, action, untilMs}}.
 * askToken: shows the person the token entry; resolves to whether there is a new one.
 * Throws what cannot be waited for, what lasted too long, and what broke off after its first text.
 */
export async function* patientSteps(request, signal, nudge, askToken) {
  for (let tries = 1; ; tries++) {
    try {
      yield { sent: true };
      yield* steps(request, signal);
      return;
    } catch (error) {
      if (!(error instanceof ApiError) || error.hasBegun || tries >= TRIES_MAX) throw error;
      const told = explain(error, request.model);
      if (told.action === "token") {
        yield { pause: { ...told, details: "", untilMs: 0 } };
        if (!(await askToken(told, signal))) throw error;
      } else if (error.code === "model_not_ready") {
        yield* pauseUntilReady(request.model, told, error, signal, nudge);
      } else if (told.action === "wait") {
        const seconds = error.retryAfterS || Math.min(FIRST_WAIT_S * 2 ** (tries - 1), LONGEST_WAIT_S);
        yield { pause: { ...told, details: "", untilMs: performance.now() + seconds * 1000 } };
        await nudge.wait(seconds * 1000, signal);
      } else {
        throw error;
      }
    }
  }
}

/** Asks where the model stands until it is ready, which a fellow's return, a load or the person's patience brings. */
async function* pauseUntilReady(modelId, told, error, signal, nudge) {
  const deadlineMs = performance.now() + READY_WITHIN_MS;
  let pause = { ...told, details: "", untilMs: 0 };
  while (performance.now() < deadlineMs) {
    try {
      const status = await askJson(modelPath(modelId, "status"), { signal });
      const state = stateWord(status.state);
      // An idle model is loaded by the next request.
      if (state === "ready" || state === "idle") return;
      const title = status.reason ? `${modelId} is ${state}: ${status.reason}` : `${modelId} is ${state}.`;
      const details = [missing(status), "This goes on by itself once it is ready."].filter(Boolean).join(" ");
      pause = { ...told, title, details, untilMs: 0, action: isHeld(state) ? "wait" : "load" };
    } catch (problem) {
      if (!(problem instanceof ApiError)) throw problem;
      if ([401, 403, 404].includes(problem.status)) throw error;
      pause = { ...pause, details: `${capitalised(problem.message)}.` };
    }
    yield { pause };
    await nudge.wait(STATUS_EVERY_MS, signal);
  }
  throw error;
}

/** Whether fellows hold or fetch stages of a model in this state: it becomes ready without anyone's doing. */
function isHeld(state) {
  return ["loading", "wiring", "recovering", "ready"].includes(state);
}
