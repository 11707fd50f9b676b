// How programs reach the same model: base URL, model id, and lines to copy. Never shows a token.

import { address } from "./api.js";
import { copyButton } from "./copying.js";
import { byId, el } from "./dom.js";

/** Fills the API panel for a model. */
export function drawSnippets(modelId, needsToken) {
  const base = address("v1");
  const model = modelId || "MODEL";
  byId("api").replaceChildren(
    fact("Base URL", base),
    fact("Model", model),
    fact("API key", needsToken ? "your token (sk-swarm-…)" : "none asked for; any text will do", false),
    snippet("curl", curl(base, model, needsToken)),
    snippet("Python", python(base, model, needsToken)),
    el("p", { class: "hint" }, "Any OpenAI client works. pip install openai"),
  );
}

function fact(name, value, isCopied = true) {
  const copy = isCopied ? copyButton(() => value, { "aria-label": `Copy ${name}` }) : null;
  return el("div", { class: "fact" }, el("span", {}, name), el(isCopied ? "code" : "span", {}, value), copy);
}

function snippet(name, text) {
  const head = el("div", { class: "code-head" }, el("span", {}, name), copyButton(() => text, { "aria-label": `Copy ${name}` }));
  return el("div", { class: "code" }, head, el("pre", { tabindex: "0" }, el("code", {}, text)));
}

function curl(base, model, needsToken) {
  const key = needsToken ? '  -H "Authorization: Bearer $SWARM_API_KEY" \\\n' : "";
  const body = `{"model": ${JSON.stringify(model)}, "stream": true,
  "messages": [{"role": "user", "content": "Hello!"}]}`;
  return `curl -N ${base}/chat/completions \\
  -H "Content-Type: application/json" \\
${key}  -d '${body.replaceAll("'", "'\\''")}'`;
}

function python(base, model, needsToken) {
  return `${needsToken ? "import os\n\n" : ""}from openai import OpenAI

client = OpenAI(
    base_url=${JSON.stringify(base)},
    api_key=${needsToken ? 'os.environ["SWARM_API_KEY"]' : '"unused"'},
)
stream = client.chat.completions.create(
    model=${JSON.stringify(model)},
    messages=[
        {"role": "user", "content": "Hello!"},
    ],
    stream=True,
)
for chunk in stream:
    for choice in chunk.choices:
        text = choice.delta.content or ""
        print(text, end="", flush=True)`;
}
