// Keeps texts in this browser, under this page's prefix. Where a browser refuses, they last as long as the page.

const PREFIX = "silentswarm.";

/** One storage area of the browser, or memory where it is refused or full. */
export class Store {
  #area;
  #memory = new Map();

  /** @param {() => Storage} open Gives the area; may throw where it is blocked. */
  constructor(open) {
    try {
      this.#area = open();
    } catch {
      this.#area = null;
    }
  }

  /** The text of a key, or null. */
  read(key) {
    if (this.#memory.has(key)) return this.#memory.get(key);
    try {
      return this.#area?.getItem(PREFIX + key) ?? null;
    } catch {
      return null;
    }
  }

  /** Keeps a text; null removes it. Returns whether it outlasts the page. */
  write(key, text) {
    this.#memory.delete(key);
    try {
      if (text === null) this.#area?.removeItem(PREFIX + key);
      else this.#area.setItem(PREFIX + key, text);
      return true;
    } catch {
      // What is stored now is older than what was to be: it must not come back.
      this.#drop(key);
      if (text !== null) this.#memory.set(key, text);
      return false;
    }
  }

  /** The value of a key that holds JSON, or null for anything else. */
  readJson(key) {
    try {
      return JSON.parse(this.read(key) ?? "null");
    } catch {
      return null;
    }
  }

  /** Removes everything of this page. */
  clear() {
    this.#memory.clear();
    try {
      const ours = Object.keys(this.#area ?? {}).filter((key) => key.startsWith(PREFIX));
      for (const key of ours) this.#area.removeItem(key);
    } catch {
      // A browser that refuses to remove refused to keep.
    }
  }

  #drop(key) {
    try {
      this.#area?.removeItem(PREFIX + key);
    } catch {
      // The same.
    }
  }
}

/** Whether a storage event is about this key of this page. */
export function isAbout(event, key) {
  return event.key === PREFIX + key;
}

/** Ends with the tab. */
export const tabStore = new Store(() => window.sessionStorage);
/** Stays on this machine. */
export const machineStore = new Store(() => window.localStorage);
