// Sweeps and searches: trials and their scores, parallel coordinates, scatter, importance, where each member runs.
import {get, on} from "./api.js";
import {atMost, command, duration, h, number, plainTable, replace, s, time} from "./dom.js";
import {link, state, update} from "./state.js";

export function sweepsView(main, {say}) {
  const body = h("div");
  main.append(h("h1", {}, state.sweep || "Sweeps"), body);
  async function load() {
    try {
      if (state.sweep) replace(body, sweep(await get(`sweeps/${encodeURIComponent(state.sweep)}`)));
      else replace(body, listing(await get("sweeps")));
    } catch (error) { say(error.message); }
  }
  load();
  const ends = [on("runs", atMost(load, 2000)), on("resync", load)];
  return {destroy() { ends.forEach((end) => end()); }, key(event) { if (event.key !== "Escape" || !state.sweep) return false; update({sweep: ""}); return true; }};
}

const done = (progress) => `${progress.counts.finished || 0} of ${progress.members} runs finished`;

function listing(found) {
  if (!found.sweeps.length) return h("p", {}, "No sweep here yet: ", command("rl sweep FILE"));
  return [h("p", {class: "dim"}, `${found.sweeps.length} of ${found.all} sweeps`), plainTable("Sweeps and searches", ["started", "name", "kind", "algorithm", "environment", "trials", "progress"],
    found.sweeps.map((one) => one.error ? ["–", one.key, h("span", {class: "error"}, one.error)] : [time(one.started), h("a", {href: link({view: "sweeps", sweep: one.key})}, one.name), one.kind, one.algorithm, one.environment, one.trials, done(one.progress)]))];
}

const short = (key) => key.split(".").pop();
const text = (value) => (value === null || value === undefined ? "–" : typeof value === "number" ? number(value) : typeof value === "object" ? JSON.stringify(value) : String(value));

function sweep(found) {
  const trials = found.trials.map((trial) => ({...trial, score: trial.return ? trial.return.iqm.value : null}));
  const states = new Map(((found.search && found.search.trials) || []).map((trial) => [trial.trial, trial]));
  const scored = trials.filter((trial) => trial.score !== null);
  const importance = Object.entries((found.search && found.search.importance) || {});
  const left = found.progress.seconds_left;
  return [
    h("p", {}, `${found.kind} of ${found.algorithm} on ${found.environment}, ${done(found.progress)}${left ? `, about ${duration(left)} left` : ""}; started ${time(found.started)}`),
    h("progress", {max: found.progress.members || 1, value: found.progress.counts.finished || 0, "aria-label": "progress of the sweep"}),
    found.search && found.search.error ? h("p", {class: "error"}, found.search.error) : null,
    scored.length ? h("section", {class: "panel"}, h("h3", {}, "Parallel coordinates"), parallel(found.keys, scored)) : h("p", {class: "dim"}, "no trial has a score yet"),
    h("div", {class: "side"}, scored.length ? found.keys.map((key) => h("figure", {}, scatter(key, scored, found.metric), h("figcaption", {}, `${short(key)}: a dot per seed, a bar at the IQM`))) : null,
      importance.length ? h("figure", {}, bars(importance), h("figcaption", {}, "importance for the score (PED-ANOVA)")) : null),
    plainTable(`Trials by ${found.metric}, best first`, ["trial", ...found.keys.map(short), "IQM", "95% interval", "seeds", "runs"],
      trials.map((trial) => [`${trial.trial}${states.get(trial.trial) ? ` (${states.get(trial.trial).state})` : ""}`, ...found.keys.map((key) => text(trial.values[key])), number(trial.score),
        trial.return && trial.return.iqm.low !== null ? `${number(trial.return.iqm.low)} to ${number(trial.return.iqm.high)}` : "–", trial.num_scores,
        h("span", {}, trial.runs.map((run) => [run.key ? h("a", {href: link({view: "run", run: run.key}), title: run.reason || run.status, class: `status ${run.status}`}, `seed ${run.seed}`) : h("span", {class: "dim"}, `seed ${run.seed} ${run.status}`), " "]))])),
    found.places.length ? plainTable("Where members run", ["trial", "seed", "host", "process", "run"], found.places.map((one) => [text(one.trial), one.seed, text(one.host), text(one.pid), text(one.run)])) : null,
    h("p", {}, command(`rl sweep --resume ${found.path}`)),
  ];
}

/** Places of a key's values between 0 and 1: by size, in logarithms where they span decades, else in order. */
function scaleOf(values) {
  const numbers = values.filter((value) => typeof value === "number");
  if (numbers.length === values.length && new Set(numbers).size > 1) {
    const isLog = Math.min(...numbers) > 0 && Math.max(...numbers) / Math.min(...numbers) >= 50, turn = isLog ? Math.log10 : (value) => value;
    const low = turn(Math.min(...numbers)), high = turn(Math.max(...numbers));
    return {place: (value) => (turn(value) - low) / (high - low), ends: [number(Math.min(...numbers)), number(Math.max(...numbers))], marks: null};
  }
  const order = [...new Set(values.map(text))].sort();
  return {place: (value) => (order.length > 1 ? order.indexOf(text(value)) / (order.length - 1) : 0.5), ends: [order[0], order[order.length - 1]], marks: order};
}

function parallel(keys, trials) {
  const axes = [...keys.map((key) => [short(key), trials.map((trial) => trial.values[key])]), ["score", trials.map((trial) => trial.score)]];
  const scales = axes.map(([, values]) => scaleOf(values)), [w, t] = [Math.max(560, 150 * axes.length), 260];
  const x = (i) => 60 + (i / Math.max(axes.length - 1, 1)) * (w - 120), y = (share) => t - 34 - share * (t - 76);
  const best = Math.max(...trials.map((trial) => trial.score)), worst = Math.min(...trials.map((trial) => trial.score));
  return h("div", {class: "scroll"}, s("svg", {viewBox: `0 0 ${w} ${t}`, width: w, height: t, role: "img", class: "chart", "aria-label": `parallel coordinates of ${trials.length} trials over ${axes.map(([name]) => name).join(", ")}`},
    trials.map((trial, row) => s("polyline", {class: "trial", fill: "none", "data-rank": Math.round(best === worst ? 4 : ((trial.score - worst) / (best - worst)) * 4), points: axes.map(([, values], i) => `${x(i)},${y(scales[i].place(values[row]))}`).join(" ")},
      s("title", {}, `trial ${trial.trial}: ${number(trial.score)}, ${keys.map((key) => `${short(key)}=${text(trial.values[key])}`).join(", ")}`))),
    axes.map(([name], i) => s("g", {}, s("line", {x1: x(i), x2: x(i), y1: y(0), y2: y(1), class: "axis"}), s("text", {x: x(i), y: 18, "text-anchor": "middle", class: "name"}, name),
      s("text", {x: x(i), y: t - 14, "text-anchor": "middle"}, scales[i].ends[0]), s("text", {x: x(i), y: 34, "text-anchor": "middle"}, scales[i].ends[1])))));
}

function scatter(key, trials, metric) {
  const scale = scaleOf(trials.map((trial) => trial.values[key])), all = trials.flatMap((trial) => trial.runs.map((run) => run.return)).filter((value) => typeof value === "number");
  const low = Math.min(...all), high = Math.max(...all), [w, t] = [360, 240];
  const x = (value) => 60 + scale.place(value) * (w - 90), y = (value) => t - 34 - ((value - low) / (high - low || 1)) * (t - 54);
  return s("svg", {viewBox: `0 0 ${w} ${t}`, role: "img", class: "chart", "aria-label": `${metric} over ${key}, ${trials.length} trials`},
    s("line", {x1: 52, x2: w - 20, y1: t - 26, y2: t - 26, class: "axis"}), s("line", {x1: 52, x2: 52, y1: 14, y2: t - 26, class: "axis"}),
    trials.map((trial) => [trial.runs.filter((run) => typeof run.return === "number").map((run) => s("circle", {cx: x(trial.values[key]), cy: y(run.return), r: 3.5, class: "dot"}, s("title", {}, `trial ${trial.trial} seed ${run.seed}: ${number(run.return)}`))),
      s("line", {x1: x(trial.values[key]) - 9, x2: x(trial.values[key]) + 9, y1: y(trial.score), y2: y(trial.score), class: "bar-line"})]),
    (scale.marks || scale.ends).slice(0, 6).map((mark, i, marks) => s("text", {x: 60 + (i / Math.max(marks.length - 1, 1)) * (w - 90), y: t - 8, "text-anchor": "middle"}, mark)),
    s("text", {x: 48, y: t - 30, "text-anchor": "end"}, number(low)), s("text", {x: 48, y: 22, "text-anchor": "end"}, number(high)));
}

function bars(entries) {
  const t = 26 * entries.length + 10, most = Math.max(...entries.map(([, value]) => value));
  return s("svg", {viewBox: `0 0 360 ${t}`, role: "img", class: "chart", "aria-label": `importance: ${entries.map(([name, value]) => `${short(name)} ${value.toFixed(2)}`).join(", ")}`},
    entries.map(([name, value], i) => s("g", {}, s("text", {x: 130, y: 22 + 26 * i, "text-anchor": "end"}, short(name)), s("rect", {x: 138, y: 10 + 26 * i, width: Math.max((value / most) * 170, 1), height: 16, class: "bar"}), s("text", {x: 314, y: 22 + 26 * i}, value.toFixed(2)))));
}
