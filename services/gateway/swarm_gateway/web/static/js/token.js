// The bearer token: kept for the tab, or on this machine when asked. Goes into the Authorization header and nowhere else.

import { machineStore, tabStore } from "./storage.js";

const KEY = "token";
// What may stand in a header; anything else was not copied whole.
const TOKEN = /^[\x21-\x7e]{1,512}$/;

/** Whether this can be a token at all. */
export function isToken(text) {
  return TOKEN.test(text);
}

/** The token in force, or "". */
export function token() {
  return tabStore.read(KEY) ?? machineStore.read(KEY) ?? "";
}

/** "tab", "machine", or "" while there is none. */
export function tokenPlace() {
  if (tabStore.read(KEY)) return "tab";
  return machineStore.read(KEY) ? "machine" : "";
}

/** Keeps a token for this tab, or on this machine. */
export function keepToken(text, isForMachine) {
  forgetToken();
  (isForMachine ? machineStore : tabStore).write(KEY, text);
}

/** Forgets it everywhere. */
export function forgetToken() {
  tabStore.write(KEY, null);
  machineStore.write(KEY, null);
}
