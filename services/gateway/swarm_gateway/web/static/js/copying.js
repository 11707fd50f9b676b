// Copies text. Also where the clipboard's own interface is missing: a page from another machine without TLS.

import { button, el } from "./dom.js";
import { announce } from "./announce.js";

const SAID_MS = 1_600;

/** A button that copies what `read` gives, and says so. */
export function copyButton(read, properties = {}) {
  let timer;
  const words = properties.words ?? "Copy";
  const made = button(words, "copy", async () => {
    const isCopied = await copy(read());
    const said = isCopied ? "Copied" : "Not copied";
    made.querySelector("span").textContent = said;
    announce(said);
    clearTimeout(timer);
    timer = setTimeout(() => (made.querySelector("span").textContent = words), SAID_MS);
  }, { class: "quiet", ...properties, words: null });
  return made;
}

async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    return copyBySelection(text);
  }
}

function copyBySelection(text) {
  const before = document.activeElement;
  const field = el("textarea", { class: "unseen", "aria-hidden": "true", tabindex: "-1" });
  field.value = text;
  // Inside an open dialog everything else is inert and cannot be selected.
  (before?.closest("dialog") ?? document.body).append(field);
  field.select();
  const isCopied = document.execCommand("copy");
  field.remove();
  before?.focus();
  return isCopied;
}
