// One plot: uPlot gives axes, cursor and zoom; lines and bands are drawn here, each on its own grid.
/* global uPlot */
import {h, number, save, time} from "./dom.js";

const LIGHT = ["#0b62a8", "#c44e00", "#00795a", "#a8407f", "#7a5c00", "#5b4fcf", "#b0302c", "#2b6f80", "#55801a", "#8a4b2f"];
const DARK = ["#5cb8f2", "#ff9f4d", "#3ddc97", "#f08cc0", "#efd84a", "#b0a5ff", "#ff8a80", "#7fd6e3", "#b5dd6b", "#e0b090"];
const isDark = () => document.documentElement.dataset.theme === "dark" || (document.documentElement.dataset.theme !== "light" && matchMedia("(prefers-color-scheme: dark)").matches);
const ink = () => getComputedStyle(document.documentElement).getPropertyValue("--ink").trim() || "#111";
const paper = () => getComputedStyle(document.documentElement).getPropertyValue("--paper").trim() || "#fff";
const rule = () => getComputedStyle(document.documentElement).getPropertyValue("--rule").trim() || "#ddd";

export const colour = (place) => (isDark() ? DARK : LIGHT)[place % LIGHT.length];

/** A line: {label, x, y, low, high, faint, place, dashed}; `low` and `high` make a band, `faint` is the raw line behind. */
export class Plot {
  constructor(options) {
    this.options = {height: 260, log: false, wall: false, range: null, onZoom: null, onCursor: null, ...options};
    this.lines = [];
    this.box = h("div", {class: "plot", role: "img", tabindex: "0", "aria-label": `${this.options.title}, no data yet`});
    this.box.addEventListener("keydown", (event) => this.key(event));
    this.observer = new ResizeObserver(() => this.resize());
    this.observer.observe(this.box);
  }

  set(lines, options = {}) {
    Object.assign(this.options, options);
    this.lines = lines;
    this.label();
    if (this.box.clientWidth) this.draw();
  }

  label() {
    const said = this.lines.slice(0, 12).map((line) => `${line.label} ${number(last(line.y))}`);
    this.box.setAttribute("aria-label", `${this.options.title}, last values: ${said.join("; ") || "no data"}`);
  }

  resize() {
    if (!this.box.clientWidth) return;
    if (this.u && Math.abs(this.u.width - this.box.clientWidth) > 1) this.u.setSize({width: this.box.clientWidth, height: this.options.height});
    else if (!this.u) this.draw();
  }

  /** The ranges that all lines need; a zoom gives the horizontal one. */
  extent() {
    let [x0, x1, y0, y1] = [Infinity, -Infinity, Infinity, -Infinity];
    const [from, to] = this.options.range || [-Infinity, Infinity];
    for (const line of this.lines) {
      for (let i = 0; i < line.x.length; i++) {
        const x = line.x[i];
        if (x < from || x > to) continue;
        if (x < x0) x0 = x;
        if (x > x1) x1 = x;
        for (const y of [line.y[i], line.low && line.low[i], line.high && line.high[i], line.faint && line.faint[i]]) {
          if (typeof y !== "number" || y !== y || (this.options.log && y <= 0)) continue;
          if (y < y0) y0 = y;
          if (y > y1) y1 = y;
        }
      }
    }
    if (this.options.range) [x0, x1] = this.options.range;
    if (!(x0 <= x1)) [x0, x1] = [0, 1];
    if (!(y0 <= y1)) [y0, y1] = this.options.log ? [0.1, 1] : [0, 1];
    if (x0 === x1) x1 = x0 + 1;
    if (this.options.log) { // whole decades: a range of none would have no ticks
      const low = 10 ** Math.floor(Math.log10(y0)), high = 10 ** Math.ceil(Math.log10(y1));
      return [x0, x1, low, high > low ? high : low * 10];
    }
    const pad = (y1 - y0 || Math.abs(y1) || 1) * 0.05;
    return [x0, x1, y0 - pad, y1 + pad === y0 - pad ? y0 + 1 : y1 + pad];
  }

  draw() {
    const [x0, x1, y0, y1] = this.extent();
    if (this.u && this.drawnLog === this.options.log && this.drawnWall === this.options.wall && this.drawnDark === isDark()) {
      this.bounds = [x0, x1, y0, y1];
      this.u.setData([[x0, x1], [y0, y1]]);
      return;
    }
    if (this.u) this.u.destroy();
    this.bounds = [x0, x1, y0, y1];
    [this.drawnLog, this.drawnWall, this.drawnDark] = [this.options.log, this.options.wall, isDark()];
    const short = (values) => values.map((value) => value === null ? "" : Math.abs(value) >= 1e4 || (value && Math.abs(value) < 1e-3) ? compact(value) : String(+value.toPrecision(6)));
    const axis = {stroke: ink(), grid: {stroke: rule(), width: 1}, ticks: {stroke: rule()}, font: "12px system-ui, sans-serif", values: (u, values) => short(values)};
    this.u = new uPlot({
      width: this.box.clientWidth, height: this.options.height, legend: {show: false}, padding: [10, 12, 0, 0],
      scales: {x: {time: this.options.wall, range: () => this.bounds.slice(0, 2)}, y: {distr: this.options.log ? 3 : 1, range: () => this.bounds.slice(2)}},
      axes: [this.options.wall ? {...axis, values: undefined} : axis, {...axis, size: 62}],
      series: [{}, {show: false}],
      cursor: {drag: {x: true, y: false, setScale: false}, points: {show: false}, sync: {key: "panels"}, bind: {dblclick: () => () => { this.zoom(null); return null; }}},
      hooks: {draw: [() => this.paint()], setSelect: [(u) => this.selected(u)], setCursor: [(u) => this.cursor(u)]},
    }, [[x0, x1], [y0, y1]], this.box);
  }

  place() {
    const u = this.u, {left, top, width, height} = u.bbox, [x0, x1, y0, y1] = this.bounds;
    const turn = this.options.log ? Math.log10 : (value) => value;
    const low = turn(u.scales.y.min), high = turn(u.scales.y.max);
    return [(x) => left + ((x - x0) / (x1 - x0)) * width, (y) => top + height - ((turn(y) - low) / (high - low)) * height, y0, y1];
  }

  paint() {
    const {ctx, bbox} = this.u, [px, py] = this.place();
    const usable = (y) => typeof y === "number" && y === y && (!this.options.log || y > 0);
    ctx.save();
    ctx.beginPath();
    ctx.rect(bbox.left, bbox.top, bbox.width, bbox.height);
    ctx.clip();
    for (const line of this.lines) {
      if (!line.low || line.x.length < 1) continue;
      ctx.beginPath();
      line.x.forEach((x, i) => ctx.lineTo(px(x), py(usable(line.high[i]) ? line.high[i] : line.y[i])));
      for (let i = line.x.length - 1; i >= 0; i--) ctx.lineTo(px(line.x[i]), py(usable(line.low[i]) ? line.low[i] : line.y[i]));
      ctx.globalAlpha = 0.18;
      ctx.fillStyle = colour(line.place);
      ctx.fill();
    }
    const stroke = (xs, ys, alpha, width, line) => {
      ctx.beginPath();
      let isDown = false;
      for (let i = 0; i < xs.length; i++) {
        if (!usable(ys[i])) { isDown = false; continue; }
        if (isDown) ctx.lineTo(px(xs[i]), py(ys[i])); else ctx.moveTo(px(xs[i]), py(ys[i]));
        isDown = true;
      }
      ctx.globalAlpha = alpha;
      ctx.lineWidth = width * devicePixelRatio;
      ctx.setLineDash(line.dashed ? [6 * devicePixelRatio, 4 * devicePixelRatio] : []);
      ctx.strokeStyle = colour(line.place);
      ctx.stroke();
    };
    for (const line of this.lines) if (line.faint) stroke(line.x, line.faint, 0.28, 1, line);
    for (const line of this.lines) {
      stroke(line.x, line.y, line.thin ? 0.5 : 1, line.thin ? 1 : line.strong ? 3 : 2, line);
      if (line.x.length === 1 && usable(line.y[0])) { ctx.globalAlpha = 1; ctx.fillStyle = colour(line.place); ctx.fillRect(px(line.x[0]) - 3, py(line.y[0]) - 3, 6, 6); }
    }
    ctx.restore();
  }

  selected(u) {
    if (u.select.width < 6) return;
    const range = [u.posToVal(u.select.left, "x"), u.posToVal(u.select.left + u.select.width, "x")];
    u.setSelect({left: 0, width: 0, top: 0, height: 0}, false);
    this.zoom(range);
  }

  zoom(range) { if (this.options.onZoom) this.options.onZoom(range); }

  key(event) {
    const [x0, x1] = this.bounds || [0, 1], width = x1 - x0;
    const ranges = {"+": [x0 + width / 4, x1 - width / 4], "-": [x0 - width / 2, x1 + width / 2], ArrowLeft: [x0 - width / 4, x1 - width / 4], ArrowRight: [x0 + width / 4, x1 + width / 4], "0": null};
    if (!(event.key in ranges) || !this.options.onZoom) return;
    event.preventDefault();
    event.stopPropagation();
    this.zoom(ranges[event.key]);
  }

  cursor(u) {
    if (!this.options.onCursor) return;
    const inside = u.cursor.left >= 0;
    const x = inside ? u.posToVal(u.cursor.left, "x") : null;
    this.options.onCursor(x, this.lines.map((line) => (inside ? nearest(line, x) : last(line.y))));
  }

  savePng(name) {
    const from = this.u.ctx.canvas, canvas = h("canvas", {width: from.width, height: from.height}), context = canvas.getContext("2d");
    context.fillStyle = paper();
    context.fillRect(0, 0, canvas.width, canvas.height);
    context.drawImage(from, 0, 0);
    canvas.toBlob((blob) => save(name, blob, "image/png"));
  }

  /** The same lines as a vector drawing. */
  saveSvg(name) {
    const [x0, x1, y0, y1] = this.bounds, [w, t, left, top] = [720, 360, 64, 16], turn = this.options.log ? Math.log10 : (v) => v;
    const px = (x) => (left + ((x - x0) / (x1 - x0)) * (w - left - 16)).toFixed(1);
    const py = (y) => (t - 40 - ((turn(y) - turn(y0)) / (turn(y1) - turn(y0))) * (t - 40 - top)).toFixed(1);
    const safe = (text) => String(text).replace(/[<>&"']/g, (letter) => `&#${letter.charCodeAt(0)};`);
    const usable = (y) => typeof y === "number" && y === y && (!this.options.log || y > 0);
    const parts = [`<rect width="100%" height="100%" fill="${paper()}"/>`];
    for (let i = 0; i <= 4; i++) {
      const x = x0 + (i / 4) * (x1 - x0), y = this.options.log ? 10 ** (turn(y0) + (i / 4) * (turn(y1) - turn(y0))) : y0 + (i / 4) * (y1 - y0);
      parts.push(`<line x1="${left}" x2="${w - 16}" y1="${py(y)}" y2="${py(y)}" stroke="${rule()}"/>`, `<text x="${left - 6}" y="${py(y)}" text-anchor="end" dy="4">${safe(number(y))}</text>`);
      parts.push(`<text x="${px(x)}" y="${t - 22}" text-anchor="middle">${safe(this.options.wall ? time(x) : number(x))}</text>`);
    }
    for (const line of this.lines) {
      const ids = line.x.map((x, i) => i).filter((i) => usable(line.y[i]));
      if (line.low) parts.push(`<polygon fill="${colour(line.place)}" opacity="0.18" points="${ids.map((i) => `${px(line.x[i])},${py(line.high[i])}`).join(" ")} ${ids.reverse().map((i) => `${px(line.x[i])},${py(line.low[i])}`).join(" ")}"/>`), ids.reverse();
      parts.push(`<polyline fill="none" stroke="${colour(line.place)}" stroke-width="${line.thin ? 1 : 2}"${line.dashed ? ' stroke-dasharray="6 4"' : ""} points="${ids.map((i) => `${px(line.x[i])},${py(line.y[i])}`).join(" ")}"/>`);
    }
    this.lines.filter((line) => !line.thin).slice(0, 12).forEach((line, i) => parts.push(`<text x="${left + 8}" y="${top + 14 + 15 * i}" fill="${colour(line.place)}">${safe(line.label)}</text>`));
    parts.push(`<text x="${w / 2}" y="${t - 4}" text-anchor="middle">${safe(this.options.xLabel || "")}</text>`);
    save(name, `<svg xmlns="http://www.w3.org/2000/svg" width="${w}" height="${t}" font-family="system-ui, sans-serif" font-size="12" fill="${ink()}">${parts.join("")}</svg>`, "image/svg+xml");
  }

  destroy() { this.observer.disconnect(); if (this.u) this.u.destroy(); }
}

function last(values) {
  for (let i = values.length - 1; i >= 0; i--) if (values[i] === values[i] && values[i] !== null) return values[i];
  return null;
}

function nearest(line, x) {
  let [low, high] = [0, line.x.length - 1];
  if (high < 0) return null;
  while (high - low > 1) { const middle = (low + high) >> 1; if (line.x[middle] < x) low = middle; else high = middle; }
  const y = line.y[Math.abs(line.x[low] - x) <= Math.abs(line.x[high] - x) ? low : high];
  return y === y ? y : null;
}

function compact(value) {
  const size = Math.abs(value);
  for (const [unit, name] of [[1e9, "B"], [1e6, "M"], [1e3, "k"]]) if (size >= unit) return `${+(value / unit).toPrecision(4)}${name}`;
  return value.toExponential(1);
}
