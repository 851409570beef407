// One run: status, curves, config, code, alerts, log, episodes, checkpoints, videos; and what can be done with it.
import {get, on, post, query, runPath, session} from "./api.js";
import {atMost, button, bytes, cell, command, duration, h, number, plainTable, replace, s, time} from "./dom.js";
import {Panels} from "./panels.js";
import {curveControls, metricAdder} from "./runs.js";
import {link, state, update} from "./state.js";

const TABS = [["curves", "Curves"], ["config", "Config"], ["code", "Code"], ["episodes", "Episodes"], ["files", "Checkpoints and videos"], ["system", "System"], ["log", "Log and alerts"]];
const FIRST = ["reward", "train/loss", "train/approx_kl", "train/entropy_loss", "rollout/team_return"];

export function runView(main, {say, confirmed}) {
  const key = state.run, body = h("div"), head = h("div", {class: "facts"});
  let details = null, panels = null, ended = false;
  const tab = () => (TABS.some(([name]) => name === state.tab) ? state.tab : "curves");
  const tabs = h("div", {role: "tablist", "aria-label": "Parts of the run", class: "tabs"}, TABS.map(([name, text]) =>
    h("button", {type: "button", role: "tab", id: `tab-${name}`, "aria-controls": "tabpanel", onclick: () => { update({tab: name}, {quiet: true}); show(); }}, text)));
  const panel = h("div", {role: "tabpanel", id: "tabpanel", tabindex: "0"});
  main.append(h("h1", {}, key), head, tabs, panel, body);

  async function load() {
    try {
      details = await get(runPath(key));
      if (!ended) replace(head, facts(details, act));
    } catch (error) { say(error.message); }
  }

  async function act(action, question, label, bodyOf = {}) {
    if (question && !(await confirmed(`${label} ${key}?`, question, label))) return;
    try {
      say("");
      await post(runPath(key, `/${action}`), bodyOf);
      await load();
      for (let i = 0; action === "resume" && i < 60 && !ended && details.facts.status !== "running"; i++) {
        await new Promise((resolve) => setTimeout(resolve, 1000));
        await load();
      }
    } catch (error) {
      if (action === "stop" && error.message.includes("stops them all") && await confirmed(`Stop all of them?`, error.message, "Stop all")) return act("stop", null, "Stop", {together: true});
      say(error.message);
    }
  }

  function show() {
    for (const one of tabs.children) { const isIt = one.id === `tab-${tab()}`; one.setAttribute("aria-selected", String(isIt)); one.tabIndex = isIt ? 0 : -1; }
    panel.setAttribute("aria-labelledby", `tab-${tab()}`);
    if (panels) { panels.destroy(); panels = null; }
    replace(panel, h("p", {class: "dim"}, "loading"));
    PARTS[tab()]().catch((error) => replace(panel, h("p", {class: "error", role: "alert"}, error.message)));
  }

  const source = () => ({runs: [key], filter: "", text: "", labels: new Map([[key, key]])});
  const PARTS = {
    async curves() {
      const known = (await get("metrics", {run: key})).metrics, first = FIRST.filter((name, i) => i === 0 || known.includes(name));
      panels = new Panels({source, say, only: true, metrics: () => (state.panel.length ? state.panel : first)});
      replace(panel, h("div", {class: "row"}, curveControls(() => panels, {groups: false}), metricAdder(() => panels, source),
        h("a", {class: "button", href: `api/${runPath(key, "/rows.jsonl")}`, download: `${key}.jsonl`}, "raw rows")), panels.box);
      panels.load();
    },
    async system() {
      const known = (await get("metrics", {run: key})).metrics.filter((name) => name.startsWith("system/") || name.startsWith("time/"));
      panels = new Panels({source, say, only: true, metrics: () => known.slice(0, 12)});
      const rows = (mapping) => Object.entries(mapping || {}).map(([name, value]) => [name, name.endsWith("bytes") && typeof value === "number" ? bytes(value) : Array.isArray(value) ? value.join(", ") || "none" : String(value)]);
      replace(panel, known.length ? panels.box : h("p", {}, "no metrics of time or system are logged"), h("div", {class: "side"}, plainTable("Hardware", ["", ""], rows(details && details.hardware)), plainTable("Versions", ["package", "version"], rows(details && details.versions))));
      panels.load();
    },
    async config() { await configPart(panel, key, details, say); },
    async code() {
      const found = await get(runPath(key, "/git")), git = (details && details.git) || {};
      replace(panel, h("p", {}, git.commit ? `commit ${git.commit}${git.branch ? ` on ${git.branch}` : ""}${git.dirty ? ", with uncommitted changes" : ""}` : "not in a git repository"),
        details && details.argv ? h("p", {}, command(details.argv.join(" "))) : null, found.diff ? diffText(found.diff) : h("p", {class: "dim"}, "nothing was uncommitted"));
    },
    async episodes() {
      const [found, agents] = await Promise.all([get(runPath(key, "/evals")), get(runPath(key, "/agents"))]), evals = found.evaluations.filter((one) => one.returns.length);
      const last = evals[evals.length - 1], episodes = found.episodes.map((one) => one.return).filter((value) => typeof value === "number");
      replace(panel, h("div", {class: "side"},
        last ? h("figure", {}, histogram(last.returns, "returns of the last evaluation"), h("figcaption", {}, `${last.returns.length} evaluation episodes at ${number(last.env_steps)} env steps, mean ${number(last.return_mean)}`)) : h("p", {class: "dim"}, "no evaluation yet"),
        episodes.length ? h("figure", {}, histogram(episodes, "returns of the newest training episodes"), h("figcaption", {}, `the newest ${episodes.length} training episodes`)) : null),
      plainTable("Evaluations, newest first", ["env steps", "mean return", "lowest", "highest", "episodes"], evals.slice(-200).reverse().map((one) => [number(one.env_steps), number(one.return_mean), number(Math.min(...one.returns)), number(Math.max(...one.returns)), one.returns.length])), agentsPart(agents));
    },
    async files() {
      await load();
      const files = details.files || [], path = details.path, address = (name) => `api/${runPath(key, "/file")}?${query({name})}`;
      replace(panel,
        plainTable("Checkpoints", ["step", "", "size", "evaluate it"], details.checkpoints.map((one) => [number(one.step), one.marks.join(", "), bytes(one.bytes), command(`rl eval ${path} --checkpoint ${one.step}`)])),
        h("h3", {}, "Videos"), files.some((one) => one.kind === "video") ? h("div", {class: "media"}, files.filter((one) => one.kind === "video").slice(0, 12).map((one) => h("figure", {}, h("video", {src: address(one.name), controls: true, preload: "metadata", "aria-label": one.name}), h("figcaption", {}, `${one.name}, ${bytes(one.bytes)}`)))) : h("p", {class: "dim"}, "none; ", command(`rl eval ${path} --video`)),
        h("h3", {}, "Plots and predictions"), h("div", {class: "media"}, files.filter((one) => one.kind === "image").slice(0, 24).map((one) => h("figure", {}, h("img", {src: address(one.name), alt: one.name, loading: "lazy"}), h("figcaption", {}, one.name)))),
        h("ul", {}, files.filter((one) => one.kind === "other").map((one) => h("li", {}, h("a", {href: address(one.name)}, one.name)))));
    },
    async log() {
      const [log, alerts] = await Promise.all([get(runPath(key, "/log"), {tail: 400}), get(runPath(key, "/alerts"))]);
      replace(panel, alerts.alerts.length ? plainTable("Alerts", ["rule", "message", "env steps"], alerts.alerts.map((one) => [String(one.rule), String(one.message), number(one.env_steps)])) : h("p", {class: "dim"}, "no alerts"),
        Object.entries(log).filter(([, text]) => text).map(([name, text]) => [h("h3", {}, name), h("pre", {class: "log", tabindex: "0"}, text)]));
    },
  };
  load().then(show);
  const ends = [on("status", (event) => event.run === key && load()), on("runs", atMost(load, 1500)), on("resync", load)];
  tabs.addEventListener("keydown", (event) => {
    const names = TABS.map(([name]) => name), step = {ArrowRight: 1, ArrowLeft: -1}[event.key];
    if (!step) return;
    update({tab: names[(names.indexOf(tab()) + step + names.length) % names.length]}, {quiet: true});
    show();
    tabs.querySelector("[aria-selected=true]").focus();
  });
  return {destroy() { ended = true; ends.forEach((end) => end()); if (panels) panels.destroy(); }};
}

function agentsPart({policies, team, league}) {
  const dash = (value) => (typeof value === "number" ? number(value) : "–");
  const score = (one) => (typeof one.score === "number" ? one.score.toFixed(3) : "–");
  return [
    policies.length ? plainTable("Policies; returns are means over their agents", ["policy", "agents", "evaluation", "training"], [
      ...policies.map((one) => [one.name, one.agents.join(", "), dash(one.eval), dash(one.rollout)]),
      ["sum over all agents", "", dash(team.eval), dash(team.rollout)]]) : null,
    league ? plainTable(`League at ${number(league.env_steps)} env steps, strongest first; counts are the learner's`, ["name", "Elo", "games", "wins", "draws", "losses", "score"],
      league.members.map((one) => [one.left ? `${one.name} (has left)` : one.name, String(Math.round(one.rating)), dash(one.games), dash(one.wins), dash(one.draws), dash(one.losses), score(one)])) : null,
  ];
}

function facts(details, act) {
  const {facts: row, progress} = details, isRunning = row.status === "running";
  const share = progress.total && progress.env_steps !== null ? Math.min(progress.env_steps / progress.total, 1) : null;
  const problems = details.problems || [];
  const words = [
    ["status", h("span", {class: `status ${row.status}`}, row.cleaned ? `${row.status}, cleaned` : row.status)], ["return", number(row.reward)],
    ["env steps", `${number(progress.env_steps)}${progress.total ? ` of ${number(progress.total)}` : ""}`], ["speed", progress.steps_per_second ? `${number(Math.round(progress.steps_per_second))} steps/s` : "–"],
    isRunning ? ["time left", duration(progress.seconds_left)] : ["took", duration(row.seconds)], ["started", time(row.started)], ["seed", cell("seed", row.seed)],
    ["on", details.holder ? `${details.holder.host}, process ${details.holder.pid}` : details.host || "–"], ["tags", cell("tags", row.tags)], ["notes", cell("notes", row.notes)],
    row.group ? ["group", row.group] : null, row.sweep ? ["sweep", h("a", {href: link({view: "sweeps", sweep: row.sweep})}, row.sweep)] : null,
    row.parent ? ["parent", h("a", {href: link({view: "run", run: row.parent.split(":")[0]})}, row.parent)] : null,
  ].filter(Boolean);
  const can = !session.read_only;
  return [
    share === null ? null : h("progress", {max: 1, value: share, "aria-label": "progress"}, `${Math.round(share * 100)}%`),
    problems.map((text) => h("p", {class: "error"}, text)),
    h("dl", {}, words.map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value)))),
    h("div", {class: "row"},
      can && isRunning ? button("Stop", () => act("stop", "It saves a checkpoint and ends, as after Ctrl-C. It can be resumed.", "Stop"), {id: "stop"}) : null,
      can && ["stopped", "killed", "failed"].includes(row.status) && details.can_resume ? button("Resume", () => act("resume", "It continues from its last checkpoint, as a process of its own.", "Resume"), {id: "resume"}) : null,
      can && !isRunning && !row.cleaned ? button("Clean", () => act("clean", "Its checkpoints and logs are removed for good; config and final metrics stay.", "Clean"), {id: "clean", class: "quiet"}) : null,
      command(`rl ${isRunning ? "watch" : row.status === "finished" ? "eval" : "resume"} ${details.path}`)),
  ];
}

async function configPart(panel, key, details, say) {
  const found = await get(runPath(key, "/config")), changed = new Set(found.changed);
  const onlyChanged = h("input", {type: "checkbox", onchange: () => fill()}), list = h("div"), other = h("div");
  const text = (value) => (value !== null && typeof value === "object" ? JSON.stringify(value) : String(value));
  const fill = () => replace(list, plainTable(found.has_default ? `Config; ${changed.size} fields are not the default` : "Config", ["field", "value"],
    Object.entries(found.values).filter(([name]) => !onlyChanged.checked || changed.has(name)).map(([name, value]) => [changed.has(name) ? h("strong", {}, name) : name, text(value)])));
  const compare = async (value) => {
    update({other: value}, {quiet: true, silent: true});
    try {
      const answer = await get(runPath(key, "/diff"), {other: value});
      const rows = Object.entries(answer.differences).flatMap(([kind, fields]) => Object.entries(fields).map(([name, [one, two]]) => [kind, name, text(one), text(two)]));
      replace(other, rows.length ? plainTable(`Differences from ${answer.with}`, ["", "field", "here", "there"], rows) : h("p", {}, `no differences from ${answer.with}`));
      say("");
    } catch (error) { say(error.message); }
  };
  const input = h("input", {type: "text", value: state.other, placeholder: "another run", "aria-label": "compare with run", list: "other-runs", onchange: () => input.value.trim() && compare(input.value.trim())});
  const parent = details && details.facts.parent ? details.facts.parent.split(":")[0] : null;
  fill();
  replace(panel, h("div", {class: "row"}, h("label", {}, onlyChanged, " only what is not the default"), found.has_default ? button("differences from the default", () => compare("default")) : null,
    parent ? button("differences from the parent", () => compare(parent)) : null, input, h("datalist", {id: "other-runs"})), other, list, h("details", {}, h("summary", {}, "the file as it was written"), h("pre", {}, found.source)));
  get("runs", {columns: "directory", limit: 100}).then((runs) => replace(panel.querySelector("#other-runs"), runs.rows.map((row) => h("option", {value: row.key})))).catch(() => {});
  if (state.other) compare(state.other);
}

function diffText(text) {
  const kind = (line) => (line.startsWith("+") ? "added" : line.startsWith("-") ? "removed" : line.startsWith("@@") ? "place" : null);
  return h("pre", {class: "diff", tabindex: "0"}, text.split("\n").map((line) => h("span", {class: kind(line)}, `${line}\n`)));
}

/** A histogram as SVG. */
export function histogram(values, label) {
  const low = Math.min(...values), high = Math.max(...values), count = Math.min(Math.max(Math.ceil(Math.sqrt(values.length)), 4), 30);
  const width = high - low || 1, bins = new Array(count).fill(0);
  for (const value of values) bins[Math.min(Math.floor(((value - low) / width) * count), count - 1)] += 1;
  const most = Math.max(...bins), [w, t] = [360, 160];
  return s("svg", {viewBox: `0 0 ${w} ${t}`, role: "img", "aria-label": `${label}: ${values.length} values from ${number(low)} to ${number(high)}`, class: "chart"},
    bins.map((bin, i) => s("rect", {x: 10 + (i * (w - 20)) / count, y: t - 24 - (bin / most) * (t - 40), width: (w - 20) / count - 1, height: (bin / most) * (t - 40), class: "bar"}, s("title", {}, `${bin} from ${number(low + (i / count) * width)}`))),
    s("text", {x: 10, y: t - 6}, number(low)), s("text", {x: w - 10, y: t - 6, "text-anchor": "end"}, number(high)));
}
