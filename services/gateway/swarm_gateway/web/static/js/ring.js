// Draws a ring of stages: one dot a fellow, the model's layers going round. Decoration; the names stand beside it as text.

import { el, svg } from "./dom.js";
import { layers, routeWord } from "./words.js";

const RADIUS = 42;
const DOTS_MAX = 24;

/** The ring of a model's stages, as a picture. */
export function ringPicture(stageCount) {
  const count = Math.max(1, Math.min(stageCount, DOTS_MAX));
  const dots = Array.from({ length: count }, (_, at) => {
    const angle = (2 * Math.PI * at) / count - Math.PI / 2;
    const [x, y] = [50 + RADIUS * Math.cos(angle), 50 + RADIUS * Math.sin(angle)];
    return svg("circle", { class: "dot", cx: x.toFixed(2), cy: y.toFixed(2), r: at === 0 ? 5.5 : 4.5 });
  });
  const orbit = svg("circle", { class: "orbit", cx: 50, cy: 50, r: RADIUS });
  return svg("svg", { class: "ring", viewBox: "0 0 100 100", "aria-hidden": "true" }, orbit, ...dots);
}

/** A small ring that turns while something is awaited. */
export function turningRing() {
  return svg(
    "svg",
    { class: "turning", viewBox: "0 0 20 20", "aria-hidden": "true" },
    svg("circle", { class: "orbit", cx: 10, cy: 10, r: 7.5 }),
    svg("g", { class: "token" }, svg("circle", { cx: 10, cy: 2.5, r: 2.4 })),
  );
}

/** Who holds what, as a list. */
export function ringList(stages) {
  return el("ol", { class: "ring-list" }, ...stages.map(ringEntry));
}

function ringEntry(stage) {
  const isAway = ["away", "lost", "ended"].includes(stage.state);
  const about = [`layers ${layers(stage)}`, isAway ? stage.state : linkWords(stage)].filter(Boolean).join(" · ");
  return el("li", { class: isAway ? "away" : "" }, el("b", { dir: "auto" }, stage.fellow_name), el("span", {}, about));
}

/** How a stage reaches the next one. */
export function linkWords(stage) {
  return { direct: "direct link", relay: "through the relay", local: "alone" }[routeWord(stage.route)] ?? "";
}
