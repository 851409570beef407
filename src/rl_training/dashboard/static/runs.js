// The first view: the table, and above it the curves of what is selected, or of the newest recipes.
import {get, on} from "./api.js";
import {button, choice, h, replace, settle} from "./dom.js";
import {AXES, Panels, SMOOTH} from "./panels.js";
import {link, state, update} from "./state.js";
import {RunsTable} from "./table.js";

const NEWEST_GROUPS = 6, MOST_RUNS = 100;

/** Controls that runs, run and compare views share. */
export function curveControls(panels, {groups = true} = {}) {
  const change = (changes) => { update(changes, {quiet: true}); panels().load(); controls(); };
  const box = h("div", {class: "controls"});
  const controls = () => replace(box,
    groups ? choice("draw", [["bands", "bands over seeds"], ["runs", "single runs"]], state.draw, (draw) => change({draw})) : null,
    groups && state.draw === "bands" ? groupInput(change) : null,
    groups && state.draw === "bands" ? check("seeds", state.seeds, (on) => change({seeds: on ? "1" : ""})) : null,
    choice("over", AXES, state.x, (x) => change({x, low: "", high: ""})),
    choice("smoothing", SMOOTH.map((value) => [value, value === "0" ? "none" : value]), state.smooth, (smooth) => change({smooth, draw: smooth !== "0" && groups ? "runs" : state.draw})),
    check("log scale", state.log, (on) => change({log: on ? "1" : ""})));
  controls();
  return box;
}

function check(label, value, change) {
  const input = h("input", {type: "checkbox", checked: Boolean(value), onchange: () => change(input.checked)});
  return h("label", {}, input, ` ${label}`);
}

function groupInput(change) {
  const input = h("input", {type: "text", list: "fields", value: state.by === "recipe" ? "" : state.by, placeholder: "everything but the seed", "aria-label": "group by", class: "by", onchange: () => change({by: input.value.trim() || "recipe", hide: []})});
  return h("label", {}, "group by ", input);
}

export function metricAdder(panels, source) {
  const list = h("datalist", {id: "metrics"});
  const input = h("input", {type: "text", list: "metrics", placeholder: "add a metric", "aria-label": "add a metric", class: "metric", onchange: () => {
    const metric = input.value.trim();
    if (!metric) return;
    input.value = "";
    update({panel: [...new Set([...panels().metrics, metric])]}, {quiet: true});
    panels().build();
    panels().load();
  }, onfocus: async () => {
    try {
      const {runs, filter} = source();
      const found = await get("metrics", {run: (runs || []).slice(0, 20), filter});
      replace(list, ["reward", "loss", ...found.metrics].map((name) => h("option", {value: name})));
    } catch { /* the box works without suggestions */ }
  }});
  return h("span", {}, input, list);
}

export function runsView(main, {say}) {
  let drawn = [], text = "", labels = new Map();
  const source = () => ({runs: state.all && !state.sel.length ? null : [...new Set([...drawn, ...state.base])], filter: state.filter, text, labels});
  const problem = h("p", {class: "error", role: "alert", id: "filter-problem"});
  const filter = h("input", {type: "search", id: "filter", value: state.filter, placeholder: "algorithm=ppo and (reward>400 or tag=keep)", "aria-label": "filter runs", "aria-describedby": "filter-problem", maxlength: 10000, spellcheck: false, autocomplete: "off"});
  const fields = h("datalist", {id: "fields"});
  const panels = new Panels({source, say, metrics: () => (state.panel.length ? state.panel : ["reward"])});
  const redraw = settle(() => panels.load(), 50);

  const choose = (found) => {
    if (state.sel.length) { drawn = state.sel; text = "selected"; return; }
    const recipes = new Set();
    drawn = [];
    for (const row of found.rows) {
      recipes.add(row.recipe_sha256 || row.key);
      if (recipes.size > NEWEST_GROUPS || drawn.length >= MOST_RUNS) break;
      drawn.push(row.key);
    }
    text = drawn.length < found.total ? `the first ${drawn.length} of ${found.total.toLocaleString("en")} runs of the table` : "";
  };
  let known = null;
  const table = new RunsTable({
    say,
    onRows: (found, failure) => {
      problem.textContent = failure || "";
      filter.setAttribute("aria-invalid", String(Boolean(failure)));
      if (!found) return;
      known = found;
      labels = new Map(found.rows.map((row) => [row.key, [row.name, row.algorithm, row.environment, row.seed === undefined ? null : `seed ${row.seed}`].filter(Boolean).join(" · ")]));
      const before = drawn.join("\n");
      choose(found);
      if (before !== drawn.join("\n") || !panels.panels.some((panel) => panel.lines.length)) redraw();
      again.hidden = !(found.total > drawn.length && !state.sel.length && found.total <= 1000);
      again.textContent = state.all ? "draw the first ones only" : `draw all ${found.total}`;
      clear.hidden = !state.sel.length;
    },
    onSelect: () => { if (known) { choose(known); table.answer(known); } panels.load(); },
  });
  const filtered = settle(() => { update({filter: filter.value, all: ""}, {quiet: true}); table.scroller.scrollTop = 0; table.load(true); }, 250);
  filter.addEventListener("input", filtered);
  const again = button("draw all", () => { update({all: state.all ? "" : "1", draw: "bands"}, {quiet: true}); table.load(true); panels.load(); }, {hidden: true, class: "quiet"});
  const clear = button("clear selection", () => { update({sel: []}, {quiet: true}); table.load(true); panels.load(); }, {hidden: true, class: "quiet"});
  const controls = curveControls(() => panels);
  main.append(
    h("h1", {class: "unseen"}, "Runs"),
    h("div", {class: "row"}, controls, metricAdder(() => panels, source), fields),
    panels.box,
    h("div", {class: "row filter"}, filter, columnPicker(() => table.load(true)), clear, again, h("a", {class: "button", href: link({view: "compare"}), id: "compare-link"}, "compare")),
    problem, table.count, table.scroller);
  get("fields").then((found) => replace(fields, [...found.columns, ...found.fields].map((name) => h("option", {value: name})))).catch(() => {});
  const end = on("theme", () => {});

  return {
    key(event) {
      if (event.key === "/") { filter.focus(); filter.select(); }
      else if (event.key === "g") { const by = controls.querySelector(".by"); if (by) by.focus(); }
      else if (event.key === "m") main.querySelector(".metric").focus();
      else if (event.key === "s") { update({smooth: SMOOTH[(SMOOTH.indexOf(state.smooth) + 1) % SMOOTH.length], draw: "runs"}, {quiet: true}); panels.load(); replace(controls, curveControls(() => panels)); }
      else if (event.key === "l") { update({log: state.log ? "" : "1"}, {quiet: true}); panels.load(); replace(controls, curveControls(() => panels)); }
      else return table.key(event);
      return true;
    },
    destroy() { end(); table.destroy(); panels.destroy(); },
  };
}

function columnPicker(changed) {
  const box = h("div", {class: "menu"});
  const fill = async () => {
    const shown = state.columns.split(",").filter(Boolean);
    let found = {columns: [], fields: [], metrics: []};
    try { found = await get("fields"); } catch { /* the shown ones can still be removed */ }
    const toggle = (name, on) => { const now = state.columns.split(",").filter((one) => one && one !== name); update({columns: (on ? [...now, name] : now).join(",") || "status"}, {quiet: true}); changed(); };
    const other = h("input", {type: "text", list: "more-columns", placeholder: "config field or metric", "aria-label": "add a column", onchange: () => { if (other.value.trim()) toggle(other.value.trim(), true); fill(); }});
    replace(box, h("datalist", {id: "more-columns"}, [...found.fields, ...found.metrics].map((name) => h("option", {value: name}))),
      [...new Set([...shown, ...found.columns])].map((name) => { const input = h("input", {type: "checkbox", checked: shown.includes(name), onchange: () => toggle(name, input.checked)}); return h("label", {}, input, ` ${name}`); }), other);
  };
  return h("details", {class: "columns", ontoggle: (event) => { if (event.target.open) fill(); }}, h("summary", {class: "button"}, "columns"), box);
}
