// Shows a model's Markdown. Hostile text in, inert elements out: the HTML is sanitised after it was made of Markdown.

import { Marked } from "../vendor/marked.esm.js";
import "../vendor/purify.min.js";
import { copyButton } from "./copying.js";
import { el } from "./dom.js";

// Beyond this a reply is shown as it is: parsing would hold up the page.
const CHARS_MAX = 200_000;
const LANGUAGE = /^language-([\w+#.-]{1,30})$/;
const LINK = /^(?:https?:|mailto:)/i;
const TAGS = [
  ...["p", "br", "hr", "em", "strong", "del", "code", "pre", "blockquote", "a", "ul", "ol", "li"],
  ...["h1", "h2", "h3", "h4", "h5", "h6", "table", "thead", "tbody", "tr", "th", "td"],
];
const SANITISED = {
  ALLOWED_TAGS: TAGS,
  ALLOWED_ATTR: ["href", "title", "start", "align", "class"],
  ALLOWED_URI_REGEXP: LINK,
  ALLOW_DATA_ATTR: false,
  ALLOW_ARIA_ATTR: false,
  RETURN_DOM_FRAGMENT: true,
};

// A model that ends a line means it: poems and addresses are no paragraphs.
const marked = new Marked({ gfm: true, breaks: true });
marked.use({
  renderer: {
    // A page that loads a picture tells its server who reads. It is named instead, and can be opened.
    image({ href, text }) {
      return `<a href="${escaped(href)}">${escaped(text || "image")}</a>`;
    },
    // What a model writes as HTML is shown as it was written.
    html({ text, block }) {
      if (/^\s*<br\s*\/?>\s*$/i.test(text)) return "<br>";
      return block ? `<p>${escaped(text)}</p>` : escaped(text);
    },
    checkbox({ checked }) {
      return checked ? "☑ " : "☐ ";
    },
  },
});

const purifier = globalThis.DOMPurify;
purifier.addHook("uponSanitizeAttribute", (node, attribute) => {
  if (attribute.attrName === "class") {
    attribute.keepAttr = node.nodeName === "CODE" && LANGUAGE.test(attribute.attrValue);
  }
});
purifier.addHook("afterSanitizeAttributes", (node) => {
  if (node.nodeName !== "A") return;
  node.setAttribute("rel", "noopener noreferrer");
  node.setAttribute("target", "_blank");
});

/** Shows a text that may still grow: only the blocks that changed are made anew, so that a selection above survives. */
export class MarkdownView {
  #raws = [];

  constructor(element) {
    this.element = element;
  }

  /** Shows the text so far. */
  show(text) {
    const blocks = blocksOf(text);
    const children = this.element.children;
    blocks.forEach(({ raw, render }, at) => {
      if (this.#raws[at] === raw) return;
      const block = el("div", { class: "block" }, render());
      if (at < children.length) children[at].replaceWith(block);
      else this.element.append(block);
    });
    while (children.length > blocks.length) this.element.lastElementChild.remove();
    this.#raws = blocks.map(({ raw }) => raw);
  }

  /** Shows the whole text: what its end says of its beginning (link definitions) counts now. */
  finish(text) {
    this.#raws = [];
    this.element.replaceChildren();
    this.show(text);
  }
}

function blocksOf(text) {
  const plain = [{ raw: text, render: () => el("p", { class: "plain" }, text) }];
  if (text.length > CHARS_MAX) return plain;
  try {
    const tokens = marked.lexer(text);
    const { links } = tokens;
    return tokens
      .filter(({ type }) => type !== "space" && type !== "def")
      .map((token) => ({ raw: token.raw, render: () => rendered(Object.assign([token], { links }), token.raw) }));
  } catch {
    return plain; // nested deeper than the parser can go
  }
}

function rendered(tokens, raw) {
  let fragment;
  try {
    fragment = purifier.sanitize(marked.parser(tokens), SANITISED);
  } catch {
    return el("p", { class: "plain" }, raw);
  }
  for (const code of fragment.querySelectorAll("pre > code")) frameCode(code);
  for (const table of fragment.querySelectorAll("table")) frameTable(table);
  return fragment;
}

function frameCode(code) {
  const language = LANGUAGE.exec(code.className)?.[1] ?? "";
  const text = code.textContent.replace(/\n$/, "");
  const head = el(
    "div",
    { class: "code-head" },
    el("span", {}, language),
    copyButton(() => text, { "aria-label": `Copy the ${language} code`.replace("  ", " ") }),
  );
  const pre = code.parentElement;
  pre.tabIndex = 0; // wide code scrolls, also by keyboard
  pre.replaceWith(el("div", { class: "code" }, head, pre.cloneNode(true)));
}

function frameTable(table) {
  table.replaceWith(el("div", { class: "table", tabindex: "0" }, table.cloneNode(true)));
}

function escaped(text) {
  return text.replace(/[&<>"']/g, (char) => `&#${char.charCodeAt(0)};`);
}
