// The settings: system prompt, temperature, longest reply, and what this browser keeps. Checked before they count.

import { byId } from "./dom.js";
import { machineStore, tabStore } from "./storage.js";
import { forgetToken, tokenPlace } from "./token.js";

const KEY = "settings";
const SYSTEM_CHARS_MAX = 100_000;
const PLACES = {
  tab: "A token is set, for this tab.",
  machine: "A token is remembered on this machine.",
  "": "No token is set.",
};

export class Settings {
  #system = byId("system");
  #temperature = byId("temperature");
  #maxTokens = byId("max-tokens");

  /** hands: {askToken(), cleared()}. */
  constructor(hands) {
    const kept = Object(machineStore.readJson(KEY));
    this.#system.value = typeof kept.system === "string" ? kept.system.slice(0, SYSTEM_CHARS_MAX) : "";
    this.#temperature.value = kept.temperature ?? "";
    this.#maxTokens.value = kept.max_tokens ?? "";
    for (const field of [this.#system, this.#temperature, this.#maxTokens]) {
      field.addEventListener("input", () => this.#keep());
    }
    byId("token-set").addEventListener("click", () => hands.askToken());
    byId("token-forget").addEventListener("click", () => {
      forgetToken();
      this.drawToken();
      byId("token-set").focus();
    });
    byId("forget-all").addEventListener("click", () => {
      for (const store of [machineStore, tabStore]) store.clear();
      for (const field of [this.#system, this.#temperature, this.#maxTokens]) field.value = "";
      this.drawToken();
      hands.cleared();
    });
    this.drawToken();
  }

  /** What a request takes from them: {system, sampling}. Fields left empty are the model's own. */
  get() {
    const sampling = {};
    const temperature = numberOf(this.#temperature);
    const maxTokens = numberOf(this.#maxTokens);
    if (temperature !== null) sampling.temperature = temperature;
    if (maxTokens !== null) sampling.max_tokens = maxTokens;
    return { system: this.#system.value, sampling };
  }

  /** Says where the token is. */
  drawToken() {
    byId("token-place").textContent = PLACES[tokenPlace()];
    byId("token-forget").hidden = !tokenPlace();
  }

  #keep() {
    const { system, sampling } = this.get();
    machineStore.write(KEY, JSON.stringify({ system, ...sampling }));
  }
}

/** The number of a field, null when it is empty or not what the field takes (its own words then say so). */
function numberOf(field) {
  const isNumber = field.value !== "" && field.validity.valid && Number.isFinite(field.valueAsNumber);
  return isNumber ? field.valueAsNumber : null;
}
