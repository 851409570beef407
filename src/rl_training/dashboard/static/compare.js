// Comparison of groups of runs: the tables of `rl compare`, curves, profiles, probability of improvement.
import {get, query} from "./api.js";
import {button, command, h, plainTable, replace} from "./dom.js";
import {colour, Plot} from "./plot.js";
import {link, state, update} from "./state.js";

export function compareView(main, {say}) {
  const plots = [], result = h("div"), note = h("p", {class: "dim", role: "status"});
  const text = (name, label, list) => { const input = h("input", {type: "text", value: state[name], list, "aria-label": label, onchange: () => { update({[name]: input.value.trim() || {by: "recipe", metrics: "reward"}[name]}, {quiet: true}); load(); }}); return h("label", {}, `${label} `, input); };
  const asked = () => ({run: state.sel, filter: state.sel.length ? "" : state.filter, by: state.by, metrics: state.metrics});
  const report = h("a", {class: "button", download: "report.html"}, "HTML report");
  main.append(h("h1", {}, "Compare"), h("div", {class: "row"}, text("by", "group by", "fields"), text("metrics", "metrics"), report,
    state.sel.length === 2 ? h("a", {class: "button", href: link({view: "run", run: state.sel[0], tab: "config", other: state.sel[1]})}, "diff of the two") : null,
    state.sel.length ? button("forget the selection", () => { update({sel: []}); }) : null), note, result);

  async function load() {
    plots.splice(0).forEach((plot) => plot.destroy());
    report.setAttribute("href", `api/report.html?${query(asked())}`);
    note.textContent = "computing";
    say("");
    try {
      const found = await get("compare", asked());
      const runs = found.entries.reduce((sum, entry) => sum + entry.runs.length, 0);
      note.textContent = `${found.entries.length} entries, ${runs} of ${runs} runs (${state.sel.length ? "selected" : state.filter || "all"})`;
      replace(result, found.notes.map((one) => h("p", {class: "note"}, one)), found.metrics.map((metric) => figures(metric, found.entries)),
        found.tables.map((one) => plainTable(one.title, one.headers, one.rows)),
        h("p", {}, command(`rl compare ${state.sel.length ? state.sel.join(" ") : `'${state.filter || "status=finished"}'`}${state.by === "recipe" ? "" : ` --by ${state.by}`} --metrics ${state.metrics}`)));
    } catch (error) { note.textContent = ""; replace(result); say(error.message); }
  }

  function figures(metric, entries) {
    const place = new Map(entries.map((entry, i) => [entry.label, i]));
    const draw = (title, xLabel, lines) => { const plot = new Plot({title, xLabel, height: 280}); plots.push(plot); plot.set(lines); return h("section", {class: "panel", "aria-label": title}, h("div", {class: "row"}, h("h3", {}, title), h("span", {class: "grow"}), button("PNG", () => plot.savePng("compare.png"), {class: "quiet"}), button("SVG", () => plot.saveSvg("compare.svg"), {class: "quiet"})), plot.box,
      h("ul", {class: "legend"}, lines.map((line) => h("li", {}, h("span", {class: "swatch", style: {background: colour(line.place)}}), h("span", {class: "label"}, line.label))))); };
    const curves = metric.curves.map((one) => ({label: `${one.entry} · ${one.task}`, x: one.env_steps, y: one.iqm, low: one.low, high: one.high, place: place.get(one.entry)}));
    const profiles = metric.profile.entries.map((one) => ({label: one.entry, x: metric.profile.levels, y: one.share, low: one.low, high: one.high, place: place.get(one.entry)}));
    return h("div", {class: "panels"}, curves.length ? draw(`${metric.name}: learning curves, IQM and 95% interval`, "env steps", curves) : null,
      profiles.length && metric.profile.levels.length ? draw(`${metric.name}: share of runs that score at least x`, metric.name, profiles) : null);
  }

  load();
  return {destroy() { plots.forEach((plot) => plot.destroy()); }};
}
