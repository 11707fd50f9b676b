// The performance view: speed, the ring with its devices and links, where the time of a token goes. Asks while it is open.

import { ApiError, askJson, modelPath } from "./api.js";
import { byId, el } from "./dom.js";
import { linkWords } from "./ring.js";
import { counted, duration, explain, figure, layers, stateWord, told } from "./words.js";

const AGAIN_MS = 2_000;

export class PerformanceView {
  #dialog = byId("performance-dialog");
  #body = byId("performance");
  #timer = 0;

  /** hands: {modelId(), lastReply()}; lastReply: the newest reply's meta, or null. */
  constructor(hands) {
    this.hands = hands;
    this.#dialog.addEventListener("close", () => clearTimeout(this.#timer));
  }

  /** Opens it. */
  open() {
    this.#body.replaceChildren(el("p", { class: "hint" }, "Asking …"));
    this.#dialog.showModal();
    this.#refresh();
  }

  async #refresh() {
    const modelId = this.hands.modelId();
    const asked = ["status", "performance"].map((what) => askJson(modelPath(modelId, what)));
    const [status, measured] = await Promise.allSettled(asked);
    // A leader that measures nothing still says who holds what.
    const failures = [status, measured].flatMap(({ reason }) => (reason ? [failureOf(reason, modelId)] : [])).slice(0, 1);
    const parts = status.value ? this.#parts(modelId, measured.value ?? {}, status.value) : [];
    this.#body.replaceChildren(...failures, ...parts);
    clearTimeout(this.#timer);
    if (this.#dialog.open) this.#timer = setTimeout(() => this.#refresh(), AGAIN_MS);
  }

  #parts(modelId, measured, status) {
    const names = (status.stages ?? []).map((stage) => String(stage.fellow_name));
    const last = this.hands.lastReply();
    const minutes = Math.max(1, Math.round(Number(measured.window_s) / 60));
    const window = minutes ? `last ${counted(minutes, "minute")}` : "";
    return [
      el("p", { class: "hint" }, el("b", { dir: "auto" }, modelId), ` is ${stateWord(status.state)}`),
      measured.window_s === undefined ? null : el("section", {}, heading("Speed", window), figures(measured)),
      el("section", {}, heading("Ring", probeWords(status)), ring(measured, status)),
      el("section", {}, heading("One token", window), split(measured.split, names)),
      last?.timing ? el("section", {}, heading("One token", "latest reply here"), split(splitOf(last.timing), last.nodes)) : null,
    ].filter(Boolean);
  }
}

function failureOf(error, modelId) {
  if (!(error instanceof ApiError)) throw error;
  return el("p", { class: "note failed" }, told(explain(error, modelId)));
}

function heading(words, about) {
  return el("h3", {}, words, about ? el("span", {}, about) : null);
}

function probeWords(status) {
  const ms = Number(status.probe_lap_ms);
  return ms > 0 ? `one lap took ${duration(ms)} when it was wired` : "";
}

function figures(measured) {
  const first = measured.first_token;
  const between = measured.inter_token;
  const entries = [
    ["tokens/s", measured.completed ? figure(Number(measured.tokens_per_s)) : "–", "while replies ran"],
    ["first token", first ? duration(first.p50_ms) : "–", first ? `95 of 100 within ${duration(first.p95_ms)}` : ""],
    ["between tokens", between ? duration(between.p50_ms) : "–", between ? `95 of 100 within ${duration(between.p95_ms)}` : ""],
    ["replies", figure(Number(measured.completed ?? 0)), endings(measured)],
    ["now", `${measured.running ?? 0} running`, `${measured.waiting ?? 0} waiting`],
  ];
  return el("dl", { class: "figures-list" }, ...entries.map(([name, value, about]) => {
    return el("div", {}, el("dt", {}, name), el("dd", {}, value), about ? el("dd", { class: "about" }, about) : null);
  }));
}

function endings({ failed, cancelled, turned_away: away }) {
  const parts = [[failed, "failed"], [cancelled, "stopped"], [away, "turned away"]];
  return parts.filter(([count]) => count > 0).map(([count, word]) => `${count} ${word}`).join(", ");
}

/** Every stage: who, on what, which layers, how busy, how full, how it reaches the next. */
function ring(measured, status) {
  const placed = status.stages ?? [];
  if (!placed.length) return el("p", { class: "hint" }, "No fellow holds this model.");
  return el("ol", { class: "stages" }, ...placed.map((stage, at) => {
    const seen = measured.stages?.[at] ?? {};
    const devices = (seen.devices ?? []).join(", ");
    const isAway = ["away", "lost", "ended"].includes(stage.state);
    return el(
      "li",
      { class: isAway ? "away" : "" },
      el("div", { class: "stage-head" }, el("b", { dir: "auto" }, stage.fellow_name), el("span", { dir: "auto" }, devices)),
      el("div", { class: "stage-about" }, `layers ${layers(stage)}`, isAway ? ` · ${stage.state}` : ""),
      meter("busy", seen.busy_share, seen.busy_share === undefined ? "not known" : `${Math.round(seen.busy_share * 100)} %`),
      meter("cache", seen.kv_tokens_used / seen.kv_tokens_max, kvWords(seen)),
      el("div", { class: "link" }, linkWords(stage), at === placed.length - 1 && placed.length > 1 ? ", back to the first" : ""),
    );
  }));
}

function kvWords({ kv_tokens_used: used, kv_tokens_max: most }) {
  return most ? `${Number(used).toLocaleString("en")} of ${Number(most).toLocaleString("en")} tokens` : "not known";
}

function meter(name, share, words) {
  const bar = el("div", { class: "bar", "aria-hidden": "true" }, el("i"));
  bar.firstElementChild.style.width = `${100 * Math.min(1, Math.max(0, Number(share) || 0))}%`;
  return el("div", { class: "meter" }, el("span", {}, name), bar, el("span", {}, words));
}

/** The time of one decoded token as one bar in parts. */
function split(times, names) {
  if (!times) return el("p", { class: "hint" }, "No reply was measured yet.");
  const stages = (times.stage_ms ?? []).map((ms, at) => [names?.[at] ?? `stage ${at}`, Number(ms), `stage-${at % 4}`]);
  const parts = [
    ...stages,
    ["links", Number(times.link_ms), "links"],
    ["waiting", Number(times.wait_ms), "waiting"],
    ["sampling", Number(times.sample_ms), "sampling"],
  ].filter(([, ms]) => ms > 0);
  const whole = parts.reduce((sum, [, ms]) => sum + ms, 0);
  if (!whole) return el("p", { class: "hint" }, "No token was measured yet.");
  const bar = el("div", { class: "split", "aria-hidden": "true" }, ...parts.map(([, ms, kind]) => {
    const piece = el("i", { class: kind });
    piece.style.flexGrow = ms;
    return piece;
  }));
  const rows = parts.map(([name, ms, kind]) => {
    return el("li", {}, el("i", { class: kind, "aria-hidden": "true" }), el("span", { dir: "auto" }, name), el("b", {}, duration(ms)));
  });
  const about = [duration(whole), times.batch_mean > 0 ? `${figure(times.batch_mean)} at once` : "", bytesWords(times)];
  return el("div", {}, bar, el("ul", { class: "legend" }, ...rows), el("p", { class: "hint" }, `${about.filter(Boolean).join(" · ")} a token`));
}

function bytesWords({ bytes_per_token: bytes }) {
  return bytes > 0 ? `${figure(bytes / 1024)} KiB over links` : "";
}

/** The timing of one reply in the shape of the measured split. */
function splitOf(timing) {
  const stage_ms = [];
  while (Number.isFinite(timing[`stage${stage_ms.length}_ms`])) stage_ms.push(timing[`stage${stage_ms.length}_ms`]);
  return { ...timing, stage_ms };
}
