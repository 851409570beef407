// The view is in the address: what is shown can be shared, bookmarked and gone back to.

const LISTS = ["sel", "panel", "hide", "base"];
const DEFAULTS = {
  view: "runs", filter: "", sort: "", columns: "status,name,algorithm,environment,seed,env_steps,reward,tags,notes,started", by: "recipe",
  x: "env_steps", smooth: "0", log: "", draw: "bands", low: "", high: "", run: "", sweep: "", other: "", metrics: "reward", seeds: "", tab: "", all: "",
};
export const state = {};
let render = () => {};

export function read() {
  const search = new URLSearchParams(location.search);
  for (const [name, value] of Object.entries(DEFAULTS)) state[name] = search.has(name) ? search.get(name) : value;
  for (const name of LISTS) state[name] = search.getAll(name);
  return state;
}

export function address(changes = {}) {
  const next = {...state, ...changes}, search = new URLSearchParams();
  for (const [name, value] of Object.entries(DEFAULTS)) if (next[name] !== value || name === "view") search.set(name, next[name]);
  for (const name of LISTS) for (const one of next[name] || []) search.append(name, one);
  return `?${search}`;
}

/** A link to another view, without what belongs to this one alone. */
export const link = (changes) => address({run: "", sweep: "", other: "", low: "", high: "", tab: "", ...changes});

/** Change the view; `quiet` keeps the page as it is, `silent` writes no new entry of the history. */
export function update(changes, {quiet = false, silent = false} = {}) {
  const target = address(changes);
  Object.assign(state, changes);
  if (target !== location.search) history[silent ? "replaceState" : "pushState"](null, "", target);
  if (!quiet) render();
}

export function start(renderer) {
  render = renderer;
  read();
  addEventListener("popstate", () => { read(); render(); });
  addEventListener("click", (event) => {
    const anchor = event.target instanceof Element ? event.target.closest("a[href^='?']") : null;
    if (!anchor || event.metaKey || event.ctrlKey || event.shiftKey || event.button) return;
    event.preventDefault();
    if (anchor.getAttribute("href") !== location.search) history.pushState(null, "", anchor.getAttribute("href"));
    read();
    render();
  });
  render();
}
