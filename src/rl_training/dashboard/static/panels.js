// Panels of curves: bands over seeds or single runs, kept up to date by the events of the server.
import {get, getCurves, on, query, subscribe} from "./api.js";
import {atMost, button, h, number, plainTable, replace, time} from "./dom.js";
import {colour, Plot} from "./plot.js";
import {state, update} from "./state.js";

export const AXES = [["env_steps", "env steps"], ["relative", "time in training"], ["wall", "wall time"], ["updates", "updates"], ["episodes", "episodes"]];
export const SMOOTH = ["0", "0.6", "0.9", "0.97"];
const BATCH = 10, MAX_CURVES = 200;

/** Several panels over the same runs. `source()` gives {runs, filter, text}. */
export class Panels {
  constructor({source, say, metrics, only = null}) {
    Object.assign(this, {source, say, only, panels: [], chosen: metrics});
    this.box = h("div", {class: "panels"});
    this.box.panels = this;
    this.ends = [
      on("row", (event) => this.panels.forEach((panel) => panel.row(event))),
      on("reset", (event) => this.panels.forEach((panel) => panel.reset(event.run))),
      on("status", atMost(() => this.load(), 500)),
      on("resync", () => this.load()),
      on("theme", () => this.panels.forEach((panel) => { panel.legend(); panel.plot.draw(); })),
    ];
    this.build();
  }

  get metrics() { return this.chosen(); }

  build() {
    this.panels.forEach((panel) => panel.destroy());
    this.panels = this.metrics.map((metric) => new Panel(this, metric));
    replace(this.box, this.panels.map((panel) => panel.box));
  }

  load() {
    this.panels.forEach((panel) => panel.load());
    const {runs} = this.source();
    subscribe(runs || [], this.panels.flatMap((panel) => [panel.metric, panel.logged]).filter(Boolean));
  }

  destroy() { this.ends.forEach((end) => end()); this.panels.forEach((panel) => panel.destroy()); }
}

class Panel {
  constructor(panels, metric) {
    Object.assign(this, {panels, metric, lines: [], bands: [], curves: new Map(), abort: null, logged: null});
    this.plot = new Plot({title: metric, onZoom: (range) => this.zoom(range), onCursor: (x, values) => this.cursor(x, values)});
    this.list = h("ul", {class: "legend"});
    this.said = h("p", {class: "said", role: "status"});
    this.values = h("details", {class: "values", ontoggle: () => this.fillValues()}, h("summary", {}, "values as a table"));
    this.title = h("h3", {}, metric);
    this.box = h("section", {class: "panel", "aria-label": metric},
      h("div", {class: "row"}, this.title, h("span", {class: "grow"}),
        button("whole range", () => this.zoom(null), {class: "quiet"}), button("PNG", () => this.plot.savePng(`${this.name}.png`), {class: "quiet"}),
        button("SVG", () => this.plot.saveSvg(`${this.name}.svg`), {class: "quiet"}), h("a", {class: "quiet csv", href: "#", download: "curves.csv"}, "CSV"),
        panels.only ? null : button("×", () => this.close(), {class: "quiet", "aria-label": `close ${metric}`})),
      this.plot.box, this.said, this.list, this.values);
    this.again = atMost(() => this.load(), () => (this.panels.source().runs || []).length > 20 || !this.panels.source().runs ? 4000 : 700);
    this.soon = atMost(() => this.load(), 300);
  }

  get name() { return this.metric.replace(/[^A-Za-z0-9]+/g, "_"); }

  close() {
    const left = this.panels.metrics.filter((metric) => metric !== this.metric);
    update({panel: left.length ? left : ["reward"]}, {quiet: true});
    this.panels.build();
    this.panels.load();
  }

  zoom(range) {
    update({low: range ? String(range[0]) : "", high: range ? String(range[1]) : ""}, {quiet: true, silent: true});
    this.panels.load();
  }

  get common() {
    return {metric: this.metric, x: state.x, low: state.low, high: state.high};
  }

  async load() {
    const {runs, filter, text} = this.panels.source();
    if (this.abort) this.abort.abort();
    this.abort = new AbortController();
    const signal = this.abort.signal;
    if (runs && !runs.length) { this.show([], text || "no runs to draw"); return; }
    const link = this.box.querySelector("a.csv");
    if (runs) link.setAttribute("href", `api/curves.csv?${query({run: runs.slice(0, MAX_CURVES), metric: this.metric, x: state.x})}`);
    link.hidden = !runs;
    try {
      if (state.draw === "bands" && !this.panels.only) {
        const found = await get("bands", {run: runs, filter, by: state.by, ...this.common}, {signal});
        if (signal.aborted) return;
        this.logged = found.metric;
        this.bands = found.groups;
        if (state.seeds && runs) await this.fetchCurves(runs, signal); else this.curves.clear();
      } else {
        this.bands = [];
        await this.fetchCurves(runs, signal);
      }
      if (!signal.aborted) this.present();
    } catch (error) {
      if (!signal.aborted) this.show([], error.message);
    }
  }

  async fetchCurves(runs, signal) {
    const wanted = runs.slice(0, MAX_CURVES);
    const found = new Map();
    for (let i = 0; i < wanted.length; i += BATCH) {
      const part = await getCurves({run: wanted.slice(i, i + BATCH), ...this.common, smoothing: state.smooth, points: 600}, {signal});
      if (signal.aborted) return;
      this.logged = part.metric;
      for (const curve of part.curves) found.set(curve.run, curve);
      this.curves = found;
      if (wanted.length > BATCH) this.present();
    }
    this.curves = found;
  }

  /** Turn what was fetched into lines and a legend. */
  present() {
    const {runs, text, labels} = this.panels.source();
    const lines = [], entries = [];
    const places = new Map();
    this.bands.forEach((band, i) => {
      const isBase = band.runs.some((key) => state.base.includes(key)), isHidden = state.hide.includes(band.id);
      const entry = {id: band.id, label: isBase ? `baseline: ${band.label}` : band.label, place: i, runs: band.runs, hidden: isHidden, count: `${band.n} of ${band.of} runs`, preliminary: band.preliminary};
      band.runs.forEach((key) => places.set(key, [i, isHidden]));
      entries.push(entry);
      if (isHidden) return;
      entry.line = lines.push({label: entry.label, x: band.x, y: band.iqm, low: band.n > 1 ? band.low : null, high: band.n > 1 ? band.high : null, place: i, dashed: isBase}) - 1;
    });
    let number = 0;
    for (const [key, curve] of this.curves) {
      const [place, isHidden] = places.get(key) || [number++, state.hide.includes(key)];
      const thin = places.has(key);
      const label = (labels && labels.get(key)) || key;
      if (!thin) entries.push({id: key, label, place, runs: [key], hidden: isHidden, count: `${curve.total.toLocaleString("en")} points`, line: isHidden ? null : lines.length});
      if (!isHidden) lines.push({label, x: curve.x, y: curve.line || curve.y, faint: curve.line ? curve.y : null, place, thin, dashed: state.base.includes(key)});
    }
    this.entries = entries;
    const drawn = this.bands.length ? this.bands.reduce((sum, band) => sum + band.n, 0) : this.curves.size;
    const asked = this.bands.length ? this.bands.reduce((sum, band) => sum + band.of, 0) : runs.length;
    const words = [`${drawn} of ${asked} runs drawn`, text, this.bands.length ? "IQM with 95% interval" : null, this.bands.some((band) => band.preliminary) ? "preliminary: runs are training" : null];
    this.show(lines, words.filter(Boolean).join(" · "));
  }

  show(lines, text) {
    this.lines = lines;
    this.said.textContent = text;
    this.title.textContent = this.logged && this.logged !== this.metric ? `${this.metric} (${this.logged})` : this.metric;
    const range = state.low !== "" && state.high !== "" ? [Number(state.low), Number(state.high)] : null;
    this.plot.set(lines, {log: Boolean(state.log), wall: state.x === "wall", range, xLabel: (AXES.find(([key]) => key === state.x) || [])[1], title: `${this.metric} by ${state.x}`});
    if (!lines.length) this.entries = this.entries && text && !this.entries.some((entry) => !entry.hidden) ? this.entries : [];
    this.legend();
    this.fillValues();
  }

  legend() {
    replace(this.list, (this.entries || []).slice(0, 60).map((entry) => {
      entry.value = h("span", {class: "value"});
      return h("li", {class: entry.hidden ? "hidden" : null},
        h("button", {type: "button", class: "swatch", "aria-pressed": String(!entry.hidden), "aria-label": `show ${entry.label}`, style: {background: colour(entry.place)}, onclick: () => this.hide(entry)}),
        h("span", {class: "label", title: entry.label}, entry.label), h("span", {class: "dim"}, ` ${entry.count}${entry.preliminary ? ", preliminary" : ""} `), entry.value,
        button(this.isBase(entry) ? "★" : "☆", () => this.pin(entry), {class: "quiet", "aria-pressed": String(this.isBase(entry)), "aria-label": `baseline ${entry.label}`}));
    }), (this.entries || []).length > 60 ? h("li", {class: "dim"}, `and ${this.entries.length - 60} more`) : null);
    this.cursor(null, this.lines.map((line) => line.y.length ? line.y[line.y.length - 1] : null));
  }

  isBase(entry) { return entry.runs.length > 0 && entry.runs.every((key) => state.base.includes(key)); }

  pin(entry) {
    update({base: this.isBase(entry) ? state.base.filter((key) => !entry.runs.includes(key)) : entry.runs}, {quiet: true});
    this.panels.load();
  }

  hide(entry) {
    update({hide: entry.hidden ? state.hide.filter((id) => id !== entry.id) : [...state.hide, entry.id]}, {quiet: true});
    this.panels.panels.forEach((panel) => panel.present());
  }

  cursor(x, values) {
    for (const entry of this.entries || []) if (entry.line !== null && entry.line !== undefined && entry.value) entry.value.textContent = number(values[entry.line]);
    this.box.dataset.cursor = x === null ? "" : state.x === "wall" ? time(x) : number(x);
  }

  fillValues() {
    if (!this.values.open) return;
    const rows = this.lines.map((line) => [line.label, ...[0, 0.25, 0.5, 0.75, 1].map((share) => { const i = Math.round(share * (line.x.length - 1)); return line.x.length ? `${number(line.y[i])} at ${state.x === "wall" ? time(line.x[i]) : number(line.x[i])}` : "–"; })]);
    replace(this.values, this.values.firstChild, plainTable(this.metric, ["line", "first", "quarter", "half", "three quarters", "last"], rows));
  }

  // -- live ----------------------------------------------------------------------------------------------------------

  /** New rows of a run. A batch that does not begin where the curve ends is not added: the curve is fetched again. */
  row(event) {
    if (this.bands.some((band) => band.runs.includes(event.run)) || (state.draw === "bands" && !this.panels.only)) this.again();
    const curve = this.curves.get(event.run);
    if (!curve || event.end <= curve.offset) return;
    if (event.start !== curve.offset || state.low !== "" || state.x === "wall" || curve.x.length > 1900) { this.soon(); return; }
    const axis = {relative: "time/elapsed_seconds"}[state.x] || state.x, weight = Number(state.smooth);
    for (const row of event.rows) {
      const x = row[axis], y = row[this.logged];
      if (typeof x !== "number" || y === undefined) continue;
      if (curve.x.length && x <= curve.x[curve.x.length - 1]) { this.soon(); return; }
      curve.x.push(x);
      curve.y.push(y === null ? NaN : y);
      curve.total += 1;
      if (!curve.line) continue;
      const [sum, mass] = curve.smoothing;
      if (y !== null) curve.smoothing = [weight * sum + (1 - weight) * y, weight * mass + (1 - weight)];
      curve.line.push(y === null ? NaN : curve.smoothing[0] / curve.smoothing[1]);
    }
    curve.offset = event.end;
    this.present();
  }

  /** The log of a run was cut back by a resume: fetch what is there now. */
  reset(run) {
    if (this.curves.has(run) || this.bands.some((band) => band.runs.includes(run))) this.soon();
  }

  destroy() { if (this.abort) this.abort.abort(); this.plot.destroy(); }
}
