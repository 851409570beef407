// The page: views, theme, keyboard, messages, the state of the connection.
import {emit, get, on, session, subscribe} from "./api.js";
import {button, h, replace} from "./dom.js";
import {link, start, state, update} from "./state.js";
import {runsView} from "./runs.js";
import {runView} from "./run.js";
import {compareView} from "./compare.js";
import {sweepsView} from "./sweeps.js";
import {alertsView} from "./alerts.js";

const VIEWS = {runs: runsView, run: runView, compare: compareView, sweeps: sweepsView, alerts: alertsView};
const KEYS = [
  ["/", "filter the runs"], ["j k", "next and previous row"], ["x or space", "select the row"], ["enter", "open the run"],
  ["c", "compare what is selected"], ["g", "group by"], ["m", "choose a metric"], ["s", "smoothing: more, then none"], ["l", "logarithmic scale"],
  ["+ − ← → 0", "zoom and move in a plot that has the focus"], ["1 2 3 4", "runs, compare, sweeps, alerts"], ["t", "theme"], ["?", "this help"], ["esc", "back"],
];
const main = document.getElementById("main"), message = document.getElementById("message"), live = document.getElementById("live");
const dialog = document.getElementById("dialog");
let current = null, unseen = 0;

/** Show what went wrong, or nothing. */
export function say(text) {
  message.hidden = !text;
  message.textContent = text || "";
}

/** Ask before a change; the question names the run. */
export function confirmed(title, text, action) {
  return new Promise((resolve) => {
    const done = (answer) => { dialog.close(); resolve(answer); };
    replace(dialog, h("h2", {id: "dialog-title"}, title), h("p", {}, text),
      h("p", {class: "row"}, button(action, () => done(true), {class: "danger", autofocus: true}), button("Cancel", () => done(false))));
    dialog.oncancel = () => resolve(false);
    dialog.showModal();
  });
}

function showHelp() {
  replace(dialog, h("h2", {id: "dialog-title"}, "Keyboard"),
    h("dl", {class: "keys"}, KEYS.map(([key, text]) => [h("dt", {}, key), h("dd", {}, text)])), button("Close", () => dialog.close(), {autofocus: true}));
  dialog.showModal();
}

function render() {
  if (current && current.destroy) current.destroy();
  say("");
  const name = VIEWS[state.view] ? state.view : "runs";
  for (const anchor of document.querySelectorAll("nav a[data-view]")) {
    anchor.setAttribute("href", link({view: anchor.dataset.view}));
    if (anchor.dataset.view === name || (name === "run" && anchor.dataset.view === "runs")) anchor.setAttribute("aria-current", "page");
    else anchor.removeAttribute("aria-current");
  }
  document.title = name === "run" ? `${state.run} · rl` : `${name} · rl dashboard`;
  replace(main);
  current = VIEWS[name](main, {say, confirmed}) || null;
  if (name === "alerts") { unseen = 0; countAlerts(); }
}

function countAlerts() {
  const badge = document.getElementById("alert-count");
  badge.hidden = !unseen;
  badge.textContent = String(unseen);
}

function setTheme(theme) {
  if (theme === "auto") delete document.documentElement.dataset.theme; else document.documentElement.dataset.theme = theme;
  document.getElementById("theme").textContent = theme;
  try { localStorage.setItem("theme", theme); } catch { /* private window */ }
  emit("theme", theme);
}

function nextTheme() {
  const themes = ["auto", "light", "dark"];
  setTheme(themes[(themes.indexOf(document.getElementById("theme").textContent) + 1) % 3]);
}

addEventListener("keydown", (event) => {
  const target = event.target, typing = target instanceof HTMLElement && (target.isContentEditable || /^(INPUT|TEXTAREA|SELECT)$/.test(target.tagName) && target.type !== "checkbox");
  if (event.ctrlKey || event.metaKey || event.altKey || dialog.open) return;
  if (typing) { if (event.key === "Escape") target.blur(); return; }
  const views = {1: "runs", 2: "compare", 3: "sweeps", 4: "alerts"};
  if (views[event.key]) update({view: views[event.key], run: "", sweep: ""});
  else if (event.key === "?") showHelp();
  else if (event.key === "t") nextTheme();
  else if (event.key === "c") update({view: "compare"});
  else if (event.key === "Escape" && state.view !== "runs") history.back();
  else if (!(current && current.key && current.key(event))) return;
  event.preventDefault();
});

document.getElementById("help").addEventListener("click", showHelp);
document.getElementById("theme").addEventListener("click", nextTheme);
on("connection", (isOpen) => { live.textContent = isOpen ? "live" : "offline, trying again"; live.dataset.state = isOpen ? "on" : "off"; });
on("alert", () => { if (state.view !== "alerts") { unseen += 1; countAlerts(); } });
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => emit("theme", "auto"));
document.addEventListener("visibilitychange", () => { if (!document.hidden) emit("resync", {}); });

let theme = "auto";
try { theme = localStorage.getItem("theme") || "auto"; } catch { /* private window */ }
setTheme(["auto", "light", "dark"].includes(theme) ? theme : "auto");
try {
  Object.assign(session, await get("session"));
} catch (error) { say(error.message); }
document.documentElement.dataset.readOnly = String(session.read_only);
start(render);
if (live.textContent === "connecting") subscribe([], []);
