// The token entry: asks for a token once at a time, tries it, keeps it. Shows no token that is kept.

import { ApiError, askJson } from "./api.js";
import { byId } from "./dom.js";
import { told } from "./words.js";
import { forgetToken, isToken, keepToken } from "./token.js";

export class TokenEntry {
  #dialog = byId("token-dialog");
  #field = byId("token-field");
  #waiting = [];

  /** changed: called when another token is in force. */
  constructor(changed) {
    this.changed = changed;
    byId("token-form").addEventListener("submit", (event) => {
      event.preventDefault();
      this.#take();
    });
    this.#dialog.addEventListener("close", () => this.#settle(false));
  }

  /** Asks. Resolves to whether there is a new token; false when the person closes it or the signal ends the wait. */
  ask(about = { title: "A token for this swarm", advice: "" }, signal = null) {
    byId("token-words").textContent = told(about);
    if (!this.#dialog.open) {
      this.#field.value = "";
      this.#say("");
      this.#dialog.showModal();
    }
    return new Promise((resolve) => {
      this.#waiting.push(resolve);
      signal?.addEventListener("abort", () => this.#dialog.close(), { once: true });
    });
  }

  async #take() {
    const text = this.#field.value.trim();
    if (!isToken(text)) {
      this.#say("A token has no spaces and no letters beyond ASCII. Was it copied whole?");
      return;
    }
    keepToken(text, byId("token-remember").checked);
    this.#say("Trying it …");
    try {
      await askJson("v1/models");
    } catch (error) {
      if (!(error instanceof ApiError)) throw error;
      if (error.status === 401) {
        forgetToken();
        this.#say("This token is not valid here: it is unknown, expired or revoked.");
        this.#field.select();
        return;
      }
      // Anything else is no fault of the token; whoever asks next is told.
    }
    this.#field.value = "";
    this.#settle(true);
    this.#dialog.close();
    this.changed();
  }

  #settle(isNew) {
    const waiting = this.#waiting;
    this.#waiting = [];
    for (const resolve of waiting) resolve(isNew);
  }

  #say(words) {
    byId("token-error").textContent = words;
  }
}
