// The conversation: its messages, what of it is sent, and what of it this browser keeps. Draws nothing, asks nobody.

import { isAbout, machineStore } from "./storage.js";

const KEY = "conversation";
const KEPT_MESSAGES_MAX = 400;
const KEPT_CHARS_MAX = 1_000_000; // browsers give a site about 5 million
const SAVE_EVERY_MS = 1_000;
const ENDED = ["done", "stopped", "failed"];

/**
 * A message: {id, role: "user" | "assistant", content, reasoning, state, note, meta}.
 * state of a reply: "waiting", "streaming", then "done", "stopped" or "failed". note: why it is not done, for people.
 * meta: {firstTokenMs, tokensPerS, tokens, finish, nodes, route, timing} of a reply that is done.
 */
export class Conversation {
  #nextId = 1;
  #savedMs = 0;
  #timer = 0;
  messages = [];

  constructor() {
    this.#restore();
  }

  /** Adds what the person said. */
  addUser(content) {
    return this.#add({ role: "user", content, state: "done" });
  }

  /** Adds an empty reply that waits. */
  addReply() {
    return this.#add({ role: "assistant", content: "", state: "waiting" });
  }

  /** Cuts the conversation before this message. */
  cutBefore(message) {
    this.messages.splice(this.messages.indexOf(message));
    this.save();
  }

  /** Forgets everything. */
  clear() {
    this.messages = [];
    this.save();
  }

  /**
   * The messages of a request. A reply without text is left out, and what the person then said twice in a row is one
   * message: many templates refuse two.
   */
  forRequest(system) {
    const sent = system.trim() ? [{ role: "system", content: system.trim() }] : [];
    for (const { role, content } of this.messages) {
      if (!content) continue;
      const last = sent.at(-1);
      if (last?.role === role) last.content += `\n\n${content}`;
      else sent.push({ role, content });
    }
    return sent;
  }

  /** Keeps it now. */
  save() {
    clearTimeout(this.#timer);
    this.#timer = 0;
    this.#savedMs = performance.now();
    machineStore.write(KEY, this.messages.length ? JSON.stringify({ version: 1, messages: this.#kept() }) : null);
  }

  /** Keeps it within a second; for replies that grow. */
  saveSoon() {
    const dueMs = this.#savedMs + SAVE_EVERY_MS - performance.now();
    if (dueMs <= 0) this.save();
    else this.#timer ||= setTimeout(() => this.save(), dueMs);
  }

  /** Whether another tab changed what is kept; if so, this one now has it. */
  takeOver(event) {
    if (!isAbout(event, KEY)) return false;
    this.#restore();
    return true;
  }

  #add(fields) {
    const message = { id: this.#nextId++, reasoning: "", note: "", meta: null, ...fields };
    this.messages.push(message);
    this.save();
    return message;
  }

  /** The newest messages that fit. */
  #kept() {
    const kept = [];
    let chars = 0;
    for (const message of this.messages.slice(-KEPT_MESSAGES_MAX).reverse()) {
      chars += message.content.length + message.reasoning.length;
      if (chars > KEPT_CHARS_MAX) break;
      kept.unshift(message);
    }
    return kept;
  }

  #restore() {
    const kept = machineStore.readJson(KEY);
    const messages = kept?.version === 1 && Array.isArray(kept.messages) ? kept.messages : [];
    this.messages = messages.filter(isMessage).map((message) => ({ ...sound(message), id: this.#nextId++ }));
  }
}

function isMessage(message) {
  return ["user", "assistant"].includes(message?.role) && typeof message.content === "string";
}

/** A kept message with every field of its type. A reply whose page was closed is stopped. */
function sound({ role, content, reasoning, state, note, meta }) {
  const isEnded = role === "user" || ENDED.includes(state);
  return {
    role,
    content,
    reasoning: typeof reasoning === "string" ? reasoning : "",
    state: role === "user" ? "done" : isEnded ? state : "stopped",
    note: isEnded && typeof note === "string" ? note : isEnded ? "" : "The page was closed before its end.",
    meta: meta && typeof meta === "object" ? meta : null,
  };
}
