// Draws the conversation and keeps its end in sight, unless the person reads further up. Asks nobody.

import { byId } from "./dom.js";
import { ReplyMessage, UserMessage } from "./messages.js";

const AT_END_PX = 48;
// A reply is drawn at most this often, and so that drawing takes at most a fifth of the time.
const DRAW_EVERY_MS = 50;
const DRAW_SHARE = 5;

export class Transcript {
  #views = new Map();
  #scroller = byId("scroller");
  #list = byId("messages");
  #toEnd = byId("to-end");
  #follows = true;
  #topPx = 0;
  #due = 0;

  /** acts: what buttons in messages do: edit, regenerate, tryNow, load, explain. */
  constructor(acts) {
    this.acts = acts;
    this.#scroller.addEventListener("scroll", () => this.#look(), { passive: true });
    this.#toEnd.addEventListener("click", () => this.#goToEnd());
    new ResizeObserver(() => this.#follow()).observe(this.#list);
    new ResizeObserver(() => this.#follow()).observe(this.#scroller);
  }

  /** Draws every message anew. */
  showAll(messages) {
    this.#views.clear();
    this.#list.replaceChildren();
    for (const message of messages) this.add(message);
    this.#goToEnd();
  }

  /** Draws one more. */
  add(message) {
    const view = message.role === "user" ? new UserMessage(message, this.acts) : new ReplyMessage(message, this.acts);
    this.#views.set(message.id, view);
    this.#list.append(view.element);
    this.#goToEnd();
    return view;
  }

  /** Draws a reply that grew, soon. */
  grow(view) {
    this.#due ||= setTimeout(() => {
      const startMs = performance.now();
      view.show();
      const restMs = (performance.now() - startMs) * DRAW_SHARE;
      this.#due = restMs > DRAW_EVERY_MS ? setTimeout(() => this.#rested(view), restMs) : 0;
    }, DRAW_EVERY_MS);
  }

  /** Draws a reply that has ended. */
  finish(view) {
    clearTimeout(this.#due);
    this.#due = 0;
    view.finish();
  }

  #rested(view) {
    this.#due = 0;
    this.grow(view);
  }

  /** Reading further up ends the following; a text that grew does not. */
  #look() {
    const { scrollTop, scrollHeight, clientHeight } = this.#scroller;
    const isAtEnd = scrollHeight - scrollTop - clientHeight < AT_END_PX;
    this.#follows = isAtEnd || (this.#follows && scrollTop >= this.#topPx);
    this.#topPx = scrollTop;
    this.#toEnd.hidden = this.#follows;
  }

  #follow() {
    if (this.#follows) this.#scroller.scrollTop = this.#scroller.scrollHeight;
    else this.#look();
  }

  #goToEnd() {
    this.#follows = true;
    this.#toEnd.hidden = true;
    this.#follow();
  }
}
