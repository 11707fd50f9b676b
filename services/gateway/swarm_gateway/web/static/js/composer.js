// Where a person writes. Enter sends, Shift and Enter begin a line, Escape stops. Knows no model and no request.

import { byId } from "./dom.js";

export class Composer {
  #form = byId("composer");
  #field = byId("message");
  #send = byId("send");
  #stop = byId("stop");
  #editing = null;
  #kept = "";

  /** hands: {send(text, instead), stop(), isBusy(), obstacle()}. */
  constructor(hands) {
    this.hands = hands;
    this.#form.addEventListener("submit", (event) => {
      event.preventDefault();
      this.#sendIt();
    });
    this.#field.addEventListener("keydown", (event) => this.#press(event));
    this.#field.addEventListener("input", () => this.draw());
    this.#stop.addEventListener("click", () => {
      hands.stop();
      this.focus();
    });
    byId("edit-cancel").addEventListener("click", () => this.cancelEdit());
    document.addEventListener("keydown", (event) => {
      if (event.key !== "Escape" || event.defaultPrevented || document.querySelector("dialog[open]")) return;
      if (hands.isBusy()) hands.stop();
      else this.cancelEdit();
    });
  }

  /** Lets the person change an earlier message; sending it cuts the conversation there. */
  edit(message) {
    if (!this.#editing) this.#kept = this.#field.value;
    this.#editing = message;
    this.#field.value = message.content;
    this.draw();
    this.focus();
  }

  /** Back to what was being written. */
  cancelEdit() {
    if (!this.#editing) return;
    this.#editing = null;
    this.#field.value = this.#kept;
    this.draw();
    this.focus();
  }

  focus() {
    this.#field.focus();
  }

  /** Shows what can be done now. */
  draw() {
    const isBusy = this.hands.isBusy();
    const obstacle = this.hands.obstacle();
    this.#send.hidden = isBusy;
    this.#stop.hidden = !isBusy;
    this.#send.disabled = !this.#field.value.trim() || obstacle !== "";
    byId("editing").hidden = !this.#editing;
    this.#field.style.height = "auto"; // browsers without field-sizing
    this.#field.style.height = `${this.#field.scrollHeight}px`;
  }

  #press(event) {
    if (event.key !== "Enter" || event.shiftKey || event.isComposing || event.keyCode === 229) return;
    // A touch keyboard has no Shift and Enter; there, Enter begins a line and the button sends.
    if (!event.ctrlKey && !event.metaKey && matchMedia("(hover: none) and (pointer: coarse)").matches) return;
    event.preventDefault();
    this.#sendIt();
  }

  #sendIt() {
    const text = this.#field.value.trim();
    if (!text || this.hands.isBusy() || this.hands.obstacle()) return;
    const instead = this.#editing;
    this.#editing = null;
    this.#field.value = instead ? this.#kept : "";
    this.#kept = "";
    this.hands.send(text, instead);
    this.draw();
    this.focus();
  }
}
