// Makes elements. Strings become text nodes, always: nothing here reads HTML.

const SVG = "http://www.w3.org/2000/svg";

/**
 * An element. properties: attributes; `on` holds listeners; true is an attribute without a value, false, null and
 * undefined none. children: nodes and strings; null and false are left out.
 */
export function el(tag, properties = {}, ...children) {
  return filled(document.createElement(tag), properties, children);
}

/** An SVG element. */
export function svg(tag, properties = {}, ...children) {
  return filled(document.createElementNS(SVG, tag), properties, children);
}

/** One of the page's icons; says nothing to screen readers. */
export function icon(name) {
  return svg("svg", { class: "icon", viewBox: "0 0 20 20", "aria-hidden": "true" }, svg("use", { href: `#icon-${name}` }));
}

/** A button with an icon and words. */
export function button(words, iconName, onClick, properties = {}) {
  const shown = iconName ? [icon(iconName), el("span", {}, words)] : [words];
  return el("button", { type: "button", on: { click: onClick }, ...properties }, ...shown);
}

/** The element of an id; it is in the page. */
export function byId(id) {
  return document.getElementById(id);
}

function filled(element, { on = {}, ...attributes }, children) {
  for (const [name, listener] of Object.entries(on)) element.addEventListener(name, listener);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === true) element.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined) element.setAttribute(name, value);
  }
  element.append(...children.filter((child) => child !== null && child !== false && child !== undefined));
  return element;
}
