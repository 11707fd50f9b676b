// Runs the talk: sends, stops, regenerates, edits. One reply at a time. Draws through the transcript only.

import { ApiError, askJson, modelPath } from "./api.js";
import { Reader, announce } from "./announce.js";
import { Nudge, patientSteps } from "./waits.js";
import { explain, told } from "./words.js";

const LEAVING_MS = 3_000; // from a click on a link to the end of the page

export class Talk {
  #conversation;
  #transcript;
  #hands;
  #running = null;
  #remark = "";
  #announced = "";
  #leftMs = -Infinity;
  #nudge = new Nudge();

  /**
   * hands: {settings(), modelId(), askToken(told, signal), changed(), editing(message)}: what the page around gives,
   * and is told.
   */
  constructor(conversation, transcript, hands) {
    this.#conversation = conversation;
    this.#transcript = transcript;
    this.#hands = hands;
  }

  /** Whether a reply is on its way. */
  get isBusy() {
    return this.#running !== null;
  }

  /** Says something and gets a reply. instead: the message this one replaces, with all that followed it. */
  say(text, instead = null) {
    if (instead) {
      this.#conversation.cutBefore(instead);
      this.#transcript.showAll(this.#conversation.messages);
    }
    this.#transcript.add(this.#conversation.addUser(text));
    this.#reply();
  }

  /** Replies anew to what stands before this reply; what followed it goes. */
  regenerate(message) {
    if (this.isBusy) return;
    this.#conversation.cutBefore(message);
    this.#transcript.showAll(this.#conversation.messages);
    this.#reply();
  }

  /** Ends the reply that runs: closing the connection ends it on every stage. */
  stop() {
    this.#running?.abort();
  }

  /** The page may be closing: a connection that ends now is no failure. */
  leave() {
    this.#leftMs = performance.now();
  }

  /** Ends the wait between two tries. */
  tryNow() {
    this.#nudge.now();
  }

  /** Has the model loaded as its leader sees fit; the reply that waits for it goes on by itself. */
  async load() {
    this.#remark = "";
    try {
      await askJson(modelPath(this.#hands.modelId(), "load"), { body: {} });
    } catch (error) {
      if (!(error instanceof ApiError)) throw error;
      this.#remark = `It could not be loaded: ${error.message}`;
    }
    this.tryNow();
  }

  async #reply() {
    const modelId = this.#hands.modelId();
    const settings = this.#hands.settings();
    const request = { model: modelId, messages: this.#conversation.forRequest(settings.system), ...settings.sampling };
    const message = this.#conversation.addReply();
    const view = this.#transcript.add(message);
    const stop = new AbortController();
    this.#running = stop;
    this.#hands.changed();
    this.#remark = "";
    view.stand({ title: "Waiting for the first word" });
    try {
      await this.#take(message, view, patientSteps(request, stop.signal, this.#nudge, this.#hands.askToken), modelId);
    } catch (error) {
      this.#end(message, error, modelId);
    }
    this.#running = null;
    view.stand(null);
    this.#transcript.finish(view);
    this.#conversation.save();
    this.#hands.changed();
  }

  async #take(message, view, steps, modelId) {
    const reader = new Reader();
    const clock = new ReplyClock();
    let nodes = Promise.resolve([]);
    let isHeld = false;
    for await (const step of steps) {
      if (step.sent) {
        clock.restart();
      } else if (step.pause) {
        this.#stand(view, step.pause);
      } else if (step.waiting) {
        const { position, reason } = step.waiting;
        isHeld = message.state === "streaming";
        const title = isHeld ? "The reply goes on in a moment." : `Waiting, position ${position}.`;
        this.#stand(view, { title, details: reason });
      } else if (step.end) {
        reader.finish(message.content);
        message.state = "done";
        message.meta = clock.figures(step.end, await nodes);
        if (!message.content && !message.reasoning) message.note = "The model ended its turn without a word.";
      } else {
        if (clock.begin() || isHeld) {
          view.stand(null);
          nodes = nodesOf(modelId); // others may have taken over
          isHeld = false;
        }
        message.state = "streaming";
        message.content += step.text ?? "";
        message.reasoning += step.reasoning ?? "";
        reader.grow(message.content);
        this.#transcript.grow(view);
        this.#conversation.saveSoon();
      }
    }
  }

  #stand(view, pause) {
    const details = [pause.details || pause.advice, this.#remark].filter(Boolean).join(" ");
    const words = told({ title: pause.title, advice: details });
    view.stand({ ...pause, title: told({ title: pause.title }), details });
    if (words !== this.#announced) announce(words);
    this.#announced = words;
  }

  #end(message, error, modelId) {
    if (performance.now() - this.#leftMs < LEAVING_MS) return; // kept as it is: not ended
    if (error.name === "AbortError") {
      message.state = "stopped";
      message.note = "Stopped.";
      announce("Stopped.");
      return;
    }
    if (!(error instanceof ApiError)) console.error(error);
    const about = error instanceof ApiError ? explain(error, modelId) : { title: "The page failed", advice: error.message };
    message.state = "failed";
    message.note = told(about);
    announce(message.note);
  }
}

/** Measures one reply on this machine's clock, as its reader felt it. */
class ReplyClock {
  #startMs = performance.now();
  #firstMs = 0;

  /** A try begins: waiting for a person or for a fellow's return is no one's speed. */
  restart() {
    this.#startMs = performance.now();
  }

  /** Text came. Returns whether it is the first. */
  begin() {
    if (this.#firstMs) return false;
    this.#firstMs = performance.now();
    return true;
  }

  /** The figures of a reply that is done. The stages' own times where they told them. */
  figures({ finish, usage, timing }, nodes) {
    const tokens = usage?.completion_tokens;
    const decodeMs = timing?.decode_ms > 0 ? timing.decode_ms : performance.now() - this.#firstMs;
    return {
      firstTokenMs: this.#firstMs ? this.#firstMs - this.#startMs : undefined,
      tokensPerS: tokens > 1 && decodeMs > 0 ? ((tokens - 1) * 1000) / decodeMs : undefined,
      tokens,
      finish,
      nodes,
      timing,
    };
  }
}

/** Names of the fellows that answer, in ring order; none where that is not told. */
async function nodesOf(modelId) {
  try {
    const status = await askJson(modelPath(modelId, "status"));
    return (status.stages ?? []).map((stage) => String(stage.fellow_name));
  } catch {
    return [];
  }
}
