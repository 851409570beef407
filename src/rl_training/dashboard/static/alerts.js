// Alerts of all runs, newest first.
import {get, on} from "./api.js";
import {atMost, h, number, plainTable, replace, time} from "./dom.js";
import {link} from "./state.js";

export function alertsView(main, {say}) {
  const result = h("div"), note = h("p", {class: "dim", role: "status"});
  main.append(h("h1", {}, "Alerts"), note, result);
  async function load() {
    try {
      const found = await get("alerts");
      note.textContent = `${found.alerts.length} of ${found.total} alerts in ${found.runs} runs`;
      replace(result, found.alerts.length ? plainTable("Alerts", ["last change", "run", "rule", "message", "env steps"], found.alerts.map((one) => [time(one.time), h("a", {href: link({view: "run", run: one.run, tab: "log"})}, one.run), String(one.rule), String(one.message), number(one.env_steps)])) : h("p", {}, "No run has raised an alert."));
    } catch (error) { say(error.message); }
  }
  load();
  const ends = [on("alert", atMost(load, 300)), on("resync", load)];
  return {destroy() { ends.forEach((end) => end()); }};
}
