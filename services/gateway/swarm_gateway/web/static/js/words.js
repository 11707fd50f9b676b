// Failures, figures and states in words for people. Pure.

/** A failure as {title, advice, action}. action: "token", "load", "new", "wait", "retry" or "": what the page offers. */
export function explain(error, modelId) {
  if (error.code === "model_not_ready") return notReady(error);
  if (error.code === "context_length_exceeded") {
    return { title: error.message, advice: "Start a new chat, or make the message shorter.", action: "new" };
  }
  if (error.hasBegun) {
    return { title: `The reply broke off: ${error.message}`, advice: "What came so far is kept.", action: "retry" };
  }
  return byStatus(error, modelId);
}

/** What `explain` said, as sentences. */
export function told({ title, advice }) {
  const ended = /[.!?:…]$/.test(title) ? title : `${title}.`;
  return advice ? `${ended} ${advice}` : ended;
}

function byStatus(error, modelId) {
  switch (error.status) {
    case 0:
      return {
        title: `${capitalised(error.message)}.`,
        advice: "Check that the gateway runs and that this machine is connected.",
        action: "wait",
      };
    case 401:
      return { title: "This swarm asks for a token.", advice: "Whoever runs it can make you one.", action: "token" };
    case 403:
      return {
        title: `This token may not do that: ${error.message}`,
        advice: "Chatting takes a token with the scope “operate”.",
        action: "token",
      };
    case 404:
      return {
        title: error.code === "model_not_found" ? `There is no model “${modelId}” here.` : error.message,
        advice: "Choose another model.",
        action: "",
      };
    case 413:
      return { title: error.message, advice: "Send less text.", action: "new" };
    case 429:
      return { title: `Too much is asked at once: ${error.message}`, advice: "", action: "wait" };
    case 502:
    case 503:
      return { title: capitalised(error.message), advice: "", action: "wait" };
    default:
      return { title: capitalised(error.message), advice: "", action: error.mayRetry ? "retry" : "" };
  }
}

function notReady(error) {
  const asksForLoad = error.message.includes("swarm model-load");
  return { title: capitalised(error.message), advice: "", action: asksForLoad ? "load" : "wait" };
}

/** A placement state of the JSON routes, or the catalog's word, as one lower-case word. */
export function stateWord(state) {
  const word = String(state ?? "").replace("PLACEMENT_STATE_", "").toLowerCase();
  return word === "unspecified" || word === "" ? "unloaded" : word;
}

/** What is missing for a model to answer, from its status: the fellows that are away, or what is loading. "" if nothing. */
export function missing(status) {
  const stages = status?.stages ?? [];
  const away = stages.filter((stage) => ["away", "lost", "ended"].includes(stage.state));
  if (away.length) {
    const who = away.map((stage) => `${stage.fellow_name} (layers ${layers(stage)}) is ${stage.state}`);
    return `${listed(who)}.`;
  }
  const loading = stages.filter((stage) => stage.state === "loading" && stage.step);
  return loading.length ? `${listed(loading.map((stage) => `${stage.fellow_name}: ${stage.step}${share(stage)}`))}.` : "";
}

/** "0–15": the first and the last layer a stage holds. */
export function layers(stage) {
  const last = Number(stage.layer_stop) - 1;
  return Number(stage.layer_start) >= last ? `${last}` : `${stage.layer_start}–${last}`;
}

/** "direct", "relay" or "local": how a stage reaches the next one; "" while that is not known. */
export function routeWord(route) {
  const word = String(route ?? "").replace("ROUTE_", "").toLowerCase();
  return word === "unspecified" ? "" : word;
}

/** A duration: "0.34 s", "8.2 ms". "" for what is not known. */
export function duration(ms) {
  if (!Number.isFinite(ms)) return "";
  if (ms >= 10_000) return `${(ms / 1000).toFixed(1)} s`;
  if (ms >= 1000) return `${(ms / 1000).toFixed(2)} s`;
  return ms >= 100 ? `${Math.round(ms)} ms` : `${Number(ms.toPrecision(2))} ms`;
}

/** A number with at most three digits that matter: "21.4", "0.52", "1,280". */
export function figure(number) {
  if (!Number.isFinite(number)) return "–";
  if (number >= 100) return Math.round(number).toLocaleString("en");
  return String(Number(number.toPrecision(3)));
}

/** "a, b and c". */
export function listed(words) {
  return words.length < 2 ? words.join("") : `${words.slice(0, -1).join(", ")} and ${words.at(-1)}`;
}

/** "1 token", "2 tokens". */
export function counted(count, noun) {
  return `${count.toLocaleString("en")} ${noun}${count === 1 ? "" : "s"}`;
}

function share(stage) {
  const [done, total] = [Number(stage.done), Number(stage.total)];
  return total > 0 ? ` ${Math.floor((100 * done) / total)} %` : "";
}

/** The same words as a sentence begins. */
export function capitalised(words) {
  return words.charAt(0).toUpperCase() + words.slice(1);
}
