// Requests to the server and the one stream of events of this page.

export const session = {read_only: true, change_token: null, version: ""};
const tags = new Map();

export function query(parameters) {
  const search = new URLSearchParams();
  for (const [name, value] of Object.entries(parameters)) {
    if (value === null || value === undefined || value === "") continue;
    for (const one of Array.isArray(value) ? value : [value]) search.append(name, one);
  }
  return search.toString();
}

async function checked(response) {
  if (response.status === 401) { location.reload(); throw new Error("the token is missing; loading the page again"); }
  if (response.ok) return response;
  let text = `${response.status} ${response.statusText}`;
  try { text = (await response.json()).error || text; } catch { /* no JSON: the status says it */ }
  const error = new Error(text);
  error.status = response.status;
  throw error;
}

export async function get(path, parameters = {}, options = {}) {
  const response = await checked(await fetch(`api/${path}?${query(parameters)}`, {signal: options.signal}));
  return response.json();
}

/** As `get`, but null where the answer is the one that was given last. */
export async function getChanged(path, parameters, options = {}) {
  const address = `api/${path}?${query(parameters)}`;
  const headers = tags.has(address) && !options.fresh ? {"If-None-Match": tags.get(address)} : {};
  const response = await fetch(address, {headers, signal: options.signal});
  if (response.status === 304) return null;
  await checked(response);
  tags.clear();
  if (response.headers.get("etag")) tags.set(address, response.headers.get("etag"));
  return response.json();
}

/** Curves in their binary form: a header, and arrays of float64. */
export async function getCurves(parameters, options = {}) {
  const response = await checked(await fetch(`api/curves?${query(parameters)}`, {signal: options.signal}));
  const buffer = await response.arrayBuffer();
  const length = new DataView(buffer).getUint32(0, true);
  const header = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 4, length)));
  let place = 4 + length;
  const take = (count) => { const array = new Float64Array(buffer, place, count); place += 8 * count; return Array.from(array); };
  for (const curve of header.curves) {
    curve.x = take(curve.points);
    curve.y = take(curve.points);
    curve.line = curve.smoothing ? take(curve.points) : null;
  }
  return header;
}

export async function post(path, body = {}) {
  const headers = {"Content-Type": "application/json", "X-RL-Token": session.change_token || ""};
  const response = await checked(await fetch(`api/${path}`, {method: "POST", headers, body: JSON.stringify(body)}));
  return response.json();
}

export const runPath = (key, part = "") => `runs/${encodeURIComponent(key)}${part}`;

// -- live -------------------------------------------------------------------------------------------------------------

const listeners = new Map();
let source = null, shown = null, seen = "";

/** Call `action` for every event of a kind; returns a function that ends it. */
export function on(event, action) {
  if (!listeners.has(event)) listeners.set(event, new Set());
  listeners.get(event).add(action);
  return () => listeners.get(event).delete(action);
}

export function emit(event, data) {
  for (const action of [...(listeners.get(event) || [])]) action(data);
}

/** Subscribe this page to the rows of some runs; one stream per page, opened anew only where the runs change. */
export function subscribe(runs, metrics) {
  const address = `api/events?${query({run: runs.slice(0, 200), metric: metrics})}`;
  if (address === shown && source && source.readyState !== EventSource.CLOSED) return;
  if (source) source.close();
  shown = address;
  source = new EventSource(seen ? `${address}&after=${seen}` : address); // what happened while it was closed is sent first
  source.onopen = () => emit("connection", true);
  source.onerror = () => emit("connection", false);
  for (const event of ["row", "reset", "status", "alert", "runs", "resync"])
    source.addEventListener(event, (message) => { seen = message.lastEventId || seen; emit(event, JSON.parse(message.data)); });
  source.addEventListener("hello", (message) => { seen = seen || message.lastEventId; });
}

export function unsubscribe() { if (source) source.close(); source = null; shown = null; }
