// Puts the page together. What each part does is in its own file.

import { Composer } from "./composer.js";
import { Conversation } from "./conversation.js";
import { byId } from "./dom.js";
import { TokenEntry } from "./entry.js";
import { Models } from "./models.js";
import { PerformanceView } from "./performance.js";
import { Settings } from "./settings.js";
import { drawSnippets } from "./snippets.js";
import { Talk } from "./talk.js";
import { token } from "./token.js";
import { Transcript } from "./transcript.js";

const conversation = new Conversation();
const entry = new TokenEntry(() => {
  settings.drawToken();
  models.refresh();
});
const settings = new Settings({ askToken: () => entry.ask(), cleared: startAnew });
const models = new Models({ changed: draw, askToken: (told) => entry.ask(told) });
const speed = new PerformanceView({ modelId: () => models.chosen, lastReply });
const transcript = new Transcript({
  edit: (message) => !talk.isBusy && composer.edit(message),
  regenerate: (message) => talk.regenerate(message),
  tryNow: () => talk.tryNow(),
  load: () => talk.load(),
  explain: () => speed.open(),
});
const talk = new Talk(conversation, transcript, {
  settings: () => settings.get(),
  modelId: () => models.chosen,
  askToken: (told, signal) => entry.ask(told, signal),
  changed: draw,
});
const composer = new Composer({
  send: (text, instead) => talk.say(text, instead),
  stop: () => talk.stop(),
  isBusy: () => talk.isBusy,
  obstacle: () => (models.chosen ? "" : models.obstacle),
});

function draw() {
  byId("welcome").hidden = conversation.messages.length > 0;
  document.body.classList.toggle("busy", talk.isBusy);
  composer.draw();
}

function startAnew() {
  talk.stop();
  composer.cancelEdit();
  conversation.clear();
  transcript.showAll([]);
  draw();
  models.refresh();
  composer.focus();
}

function lastReply() {
  return conversation.messages.findLast(({ meta }) => meta)?.meta ?? null;
}

byId("new-chat").addEventListener("click", startAnew);
byId("open-performance").addEventListener("click", () => speed.open());
byId("open-api").addEventListener("click", () => {
  drawSnippets(models.chosen, token() !== "");
  byId("api-dialog").showModal();
});
byId("open-settings").addEventListener("click", () => {
  settings.drawToken();
  byId("settings-dialog").showModal();
});
for (const dialog of document.querySelectorAll("dialog")) {
  dialog.querySelector(".close").addEventListener("click", () => dialog.close());
  dialog.addEventListener("click", (event) => event.target === dialog && dialog.close());
}
window.addEventListener("storage", (event) => {
  if (talk.isBusy || !conversation.takeOver(event)) return;
  transcript.showAll(conversation.messages);
  draw();
});
window.addEventListener("beforeunload", () => talk.leave());
window.addEventListener("pagehide", () => talk.isBusy && conversation.save());

transcript.showAll(conversation.messages);
draw();
models.refresh();
composer.focus();
