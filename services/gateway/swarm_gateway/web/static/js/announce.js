// Says to screen readers what sighted people see appear: states at once, a growing reply by whole sentences.

import { byId, el } from "./dom.js";

const KEPT_LINES = 30;
const SENTENCE_END = /[.!?。！？…:]["'”’)\]]*\s|\n/g;

/** Says something, politely. */
export function announce(words) {
  if (!words.trim()) return;
  const live = byId("announcements");
  live.append(el("p", {}, words));
  while (live.childElementCount > KEPT_LINES) live.firstElementChild.remove();
}

/** Says a growing text, each sentence once it is whole. */
export class Reader {
  #said = 0;

  /** The text so far. */
  grow(text) {
    let end = 0;
    SENTENCE_END.lastIndex = this.#said;
    for (let match; (match = SENTENCE_END.exec(text)); ) end = SENTENCE_END.lastIndex;
    if (end > this.#said) this.#say(text, end);
  }

  /** The whole text. */
  finish(text) {
    this.#say(text, text.length);
  }

  #say(text, end) {
    announce(text.slice(this.#said, end));
    this.#said = end;
  }
}
