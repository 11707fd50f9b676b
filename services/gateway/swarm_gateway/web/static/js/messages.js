// Draws single messages: what a person said, and a reply in all its states. Decides nothing; buttons call `acts`.

import { copyButton } from "./copying.js";
import { button, el, icon } from "./dom.js";
import { MarkdownView } from "./markdown.js";
import { turningRing } from "./ring.js";
import { counted, duration, figure } from "./words.js";

const COUNTDOWN_MS = 500;

/** What a person said. */
export class UserMessage {
  constructor(message, acts) {
    const edit = button("Edit", "edit", () => acts.edit(message), { class: "quiet" });
    this.element = el(
      "article",
      { class: "message user", "aria-label": "You" },
      el("div", { class: "bubble", dir: "auto" }, message.content),
      el("div", { class: "actions" }, edit, copyButton(() => message.content)),
    );
  }

  show() {}
}

/** A reply. `show` draws the message as it is now; `finish` once it no longer grows. */
export class ReplyMessage {
  #message;
  #acts;
  #markdown;
  #parts;
  #countdown = 0;

  constructor(message, acts) {
    this.#message = message;
    this.#acts = acts;
    const reasoning = el("p", { class: "reasoning-text", dir: "auto" });
    const summary = el("span", {}, "Reasoning");
    this.#parts = {
      summary,
      reasoning,
      reasons: el("details", { class: "reasoning", hidden: true }, el("summary", {}, icon("chevron"), summary), reasoning),
      text: el("div", { class: "text", dir: "auto" }),
      standing: el("div", { class: "standing", hidden: true }),
      note: el("div", { class: "note", hidden: true }),
      foot: el("div", { class: "foot", hidden: true }),
    };
    this.#markdown = new MarkdownView(this.#parts.text);
    const { reasons, text, standing, note, foot } = this.#parts;
    const label = { class: "message reply", "aria-label": "Reply" };
    this.element = el("article", label, reasons, text, standing, note, foot);
    if (isGrowing(message)) this.show();
    else this.finish();
  }

  /** The text so far. */
  show() {
    this.#markdown.show(this.#message.content);
    this.#drawState();
  }

  /** The whole text, and what can be done with it. */
  finish() {
    this.#markdown.finish(this.#message.content);
    this.#drawState();
    this.#drawNote();
    this.#drawFoot();
  }

  /** Words while nothing comes. pause: {title, details, action, untilMs}, all but the first at will; null: it goes on. */
  stand(pause) {
    const { standing } = this.#parts;
    clearInterval(this.#countdown);
    standing.hidden = !pause;
    if (!pause) {
      standing.replaceChildren();
      return;
    }
    const left = el("span", { class: "left" });
    const words = el("p", { dir: "auto" }, el("b", {}, pause.title), pause.details ? ` ${pause.details}` : null, left);
    const buttons = el("div", { class: "actions" });
    if (pause.untilMs) buttons.append(button("Try now", "again", () => this.#acts.tryNow(), { class: "quiet" }));
    if (pause.action === "load") {
      buttons.append(button("Load the model", "load", () => this.#acts.load(), { class: "quiet strong" }));
    }
    standing.replaceChildren(turningRing(), el("div", {}, words, buttons.childElementCount ? buttons : null));
    if (pause.untilMs) this.#countDown(left, pause.untilMs);
  }

  #countDown(left, untilMs) {
    const draw = () => {
      const seconds = Math.max(0, Math.ceil((untilMs - performance.now()) / 1000));
      left.textContent = seconds ? ` Trying again in ${seconds} s.` : " Trying again.";
      if (!seconds || !left.isConnected) clearInterval(this.#countdown);
    };
    draw();
    this.#countdown = setInterval(draw, COUNTDOWN_MS);
  }

  #drawState() {
    const { reasons, reasoning, summary } = this.#parts;
    const { content, state } = this.#message;
    this.element.classList.toggle("growing", isGrowing(this.#message));
    reasons.hidden = !this.#message.reasoning;
    if (reasoning.textContent !== this.#message.reasoning) reasoning.textContent = this.#message.reasoning;
    summary.textContent = state === "streaming" && !content ? "Reasoning …" : "Reasoning";
  }

  #drawNote() {
    const { note } = this.#parts;
    const { state, note: words } = this.#message;
    note.hidden = !words;
    note.className = `note ${state}`;
    note.replaceChildren(words ? el("p", { dir: "auto" }, words) : "");
  }

  #drawFoot() {
    const { foot } = this.#parts;
    const { content, state } = this.#message;
    const isWhole = state === "done";
    const again = button(isWhole ? "Regenerate" : "Try again", "again", () => this.#acts.regenerate(this.#message), {
      class: isWhole ? "quiet again" : "quiet strong again",
    });
    const copy = content ? copyButton(() => this.#message.content) : null;
    foot.hidden = false;
    foot.replaceChildren(el("div", { class: "actions" }, copy, again), figuresOf(this.#message.meta, this.#acts));
  }
}

function isGrowing({ state }) {
  return state === "waiting" || state === "streaming";
}

/** "kitchen → attic · 21.4 tokens/s · first token 0.34 s": who answered and how fast; opens the performance view. */
function figuresOf(meta, acts) {
  if (!meta) return "";
  const figures = [
    Number.isFinite(meta.tokensPerS) ? `${figure(meta.tokensPerS)} tokens/s` : "",
    Number.isFinite(meta.firstTokenMs) ? `first token ${duration(meta.firstTokenMs)}` : "",
    Number.isFinite(meta.tokens) ? counted(meta.tokens, "token") : "",
    meta.finish === "length" ? "cut at the limit" : "",
  ].filter(Boolean);
  const nodes = Array.isArray(meta.nodes) ? meta.nodes.map(String) : [];
  const who = nodes.length ? el("span", { class: "nodes", dir: "auto" }, nodes.join(" → ")) : null;
  const said = el("span", {}, figures.join(" · "));
  const title = "Where the time went";
  return el("button", { type: "button", class: "figures", title, on: { click: () => acts.explain() } }, who, said);
}
