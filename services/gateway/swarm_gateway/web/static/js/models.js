// The choice of a model: what there is, what of it is loaded, what was chosen last. Asks again now and then.

import { ApiError, askJson, modelPath } from "./api.js";
import { button, byId, el } from "./dom.js";
import { ringList, ringPicture } from "./ring.js";
import { machineStore } from "./storage.js";
import { explain, missing, stateWord, told } from "./words.js";

const KEY = "model";
const AGAIN_MS = 10_000;
const AFTER_FAILURE_MS = 4_000;
const LOADED = ["ready"];
const COMING = ["loading", "wiring", "recovering", "idle"];

export class Models {
  #select = byId("model");
  #dot = byId("model-dot");
  #welcome = byId("welcome");
  #models = [];
  #drawn = "";
  #timer = 0;
  #failure = null;
  #hasAsked = false;

  /** hands: {changed(), askToken(told)}. */
  constructor(hands) {
    this.hands = hands;
    this.#select.addEventListener("change", () => {
      machineStore.write(KEY, this.#select.value);
      this.#draw();
      this.refresh();
    });
    document.addEventListener("visibilitychange", () => {
      if (!document.hidden) this.refresh();
    });
  }

  /** The chosen model's id, "" while there is none. */
  get chosen() {
    return this.#select.value;
  }

  /** Asks which models there are, and again later. */
  async refresh() {
    clearTimeout(this.#timer);
    try {
      const answer = await askJson("v1/models");
      this.#models = Array.isArray(answer.data) ? answer.data : [];
      this.#failure = null;
    } catch (error) {
      if (!(error instanceof ApiError)) throw error;
      this.#failure = explain(error, "");
    }
    this.#draw();
    if (this.#failure?.action === "token") {
      this.#askTokenOnce();
    } else {
      clearTimeout(this.#timer);
      this.#timer = setTimeout(() => !document.hidden && this.refresh(), this.#failure ? AFTER_FAILURE_MS : AGAIN_MS);
    }
    await this.#drawWelcome();
  }

  /** Why nothing can be asked, for people; "" when it can. */
  get obstacle() {
    if (this.#models.length) return "";
    if (this.#failure) return told(this.#failure);
    return "There is no model yet. Import one with: swarm model-import FOLDER";
  }

  #draw() {
    this.#drawList();
    const state = this.#stateOf(this.chosen);
    this.#dot.className = `dot ${this.#failure ? "failed" : kindOf(state)}`;
    byId("model-state").textContent = this.#failure ? "not reached" : this.chosen && state;
    this.#drawBanner();
    this.hands.changed();
  }

  #drawBanner() {
    const banner = byId("banner");
    const words = this.#failure ? told(this.#failure) : "";
    if (banner.dataset.drawn === words) return;
    banner.dataset.drawn = words;
    banner.hidden = !words;
    const enter = button("Enter a token", "", () => this.hands.askToken(this.#failure), { class: "quiet strong" });
    banner.replaceChildren(words, this.#failure?.action === "token" ? enter : "");
  }

  /** The entry opens by itself once; whoever closed it finds it in the banner. */
  #askTokenOnce() {
    if (this.#hasAsked) return;
    this.#hasAsked = true;
    this.hands.askToken(this.#failure);
  }

  #drawList() {
    // An open list must not change under the person's hand for nothing.
    const drawn = JSON.stringify(this.#models.map(({ id, swarm }) => [id, swarm?.state]));
    if (drawn === this.#drawn) return;
    this.#drawn = drawn;
    const wanted = this.#select.value || machineStore.read(KEY);
    const groups = [
      ["Loaded", (state) => LOADED.includes(state)],
      ["On its way, or loaded when asked", (state) => COMING.includes(state)],
      ["Not loaded", (state) => !LOADED.includes(state) && !COMING.includes(state)],
    ].map(([label, belongs]) => {
      const members = this.#models.filter(({ swarm }) => belongs(stateWord(swarm?.state)));
      return members.length ? el("optgroup", { label }, ...members.map(optionOf)) : null;
    });
    const none = this.#models.length ? [] : [el("option", { value: "" }, "No model yet")];
    this.#select.replaceChildren(...none, ...groups.filter(Boolean));
    this.#select.disabled = !this.#models.length;
    if (this.#models.some(({ id }) => id === wanted)) this.#select.value = wanted;
  }

  /** The first thing one sees: the model's ring, who holds which layers. */
  async #drawWelcome() {
    if (this.#welcome.hidden) return;
    const modelId = this.chosen;
    const status = modelId && !this.#failure ? await askJson(modelPath(modelId, "status")).catch(() => null) : null;
    if (modelId !== this.chosen) return;
    const stages = status?.stages ?? [];
    const isHeld = stages.length > 0 && ["ready", "loading", "wiring", "recovering"].includes(stateWord(status.state));
    const words = isHeld ? missing(status) || ringWords(stages.length) : this.obstacle || stateWords(this.#stateOf(modelId));
    const seen = stages.map((stage) => [stage.fellow_name, stage.state, stage.route]);
    const drawn = JSON.stringify([modelId, words, isHeld && seen]);
    if (this.#welcome.dataset.drawn === drawn) return;
    this.#welcome.dataset.drawn = drawn;
    this.#welcome.replaceChildren(
      ringPicture(isHeld ? stages.length : 1),
      el("h2", { dir: "auto" }, modelId || "SilentSwarm"),
      el("p", {}, words),
      isHeld ? ringList(stages) : "",
    );
  }

  #stateOf(modelId) {
    return stateWord(this.#models.find(({ id }) => id === modelId)?.swarm?.state);
  }
}

function optionOf({ id, swarm }) {
  const state = stateWord(swarm?.state);
  return el("option", { value: id }, LOADED.includes(state) ? id : `${id} (${state})`);
}

function kindOf(state) {
  if (LOADED.includes(state)) return "ready";
  return COMING.includes(state) ? "coming" : "";
}

function ringWords(count) {
  return count === 1 ? "One machine answers." : `${count} machines answer as one: every token is one lap.`;
}

function stateWords(state) {
  if (state === "idle") return "It sleeps, and is loaded when you ask something.";
  return state === "failed" ? "It is not served at the moment." : "It is not loaded yet.";
}
