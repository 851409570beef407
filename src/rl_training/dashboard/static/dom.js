// Elements and texts. Everything that comes from a run is set as text, never as markup.

const SVG = "http://www.w3.org/2000/svg";

function fill(node, properties, children) {
  for (const [name, value] of Object.entries(properties || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name === "class") node.setAttribute("class", value);
    else if (name === "style") Object.assign(node.style, value);
    else if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (name === "value" || name === "checked" || name === "selected" || name === "indeterminate") node[name] = value;
    else node.setAttribute(name, value === true ? "" : String(value));
  }
  for (const child of children.flat(3)) {
    if (child === null || child === undefined || child === false) continue;
    node.append(child instanceof Node ? child : document.createTextNode(String(child)));
  }
  return node;
}

/** An element: h("a", {href: "?"}, "text"). */
export const h = (tag, properties, ...children) => fill(document.createElement(tag), properties, children);

/** An SVG element. */
export const s = (tag, properties, ...children) => fill(document.createElementNS(SVG, tag), properties, children);

export function replace(node, ...children) {
  node.replaceChildren(...children.flat(3).filter((child) => child !== null && child !== undefined && child !== false));
  return node;
}

/** A number in few characters. */
export function number(value) {
  if (value === null || value === undefined) return "–";
  if (typeof value !== "number") return String(value);
  if (!Number.isFinite(value)) return String(value);
  const size = Math.abs(value);
  if (Number.isInteger(value)) return value.toLocaleString("en");
  if (size >= 10000) return Math.round(value).toLocaleString("en");
  if (size >= 10) return value.toFixed(1);
  if (size >= 0.001 || size === 0) return String(+value.toPrecision(4));
  return value.toExponential(2).replace(/\.?0+e/, "e");
}

/** Seconds as 3 h 12 min. */
export function duration(seconds) {
  if (seconds === null || seconds === undefined) return "–";
  const whole = Math.round(seconds);
  if (whole < 60) return `${whole} s`;
  if (whole < 3600) return `${Math.floor(whole / 60)} min ${whole % 60} s`;
  if (whole < 86400) return `${Math.floor(whole / 3600)} h ${Math.floor((whole % 3600) / 60)} min`;
  return `${Math.floor(whole / 86400)} d ${Math.floor((whole % 86400) / 3600)} h`;
}

/** A UTC time in the zone of whoever looks. */
export function time(text) {
  const date = typeof text === "number" ? new Date(text * 1000) : new Date(text);
  if (!text || Number.isNaN(date.getTime())) return "–";
  const two = (part) => String(part).padStart(2, "0");
  return `${date.getFullYear()}-${two(date.getMonth() + 1)}-${two(date.getDate())} ${two(date.getHours())}:${two(date.getMinutes())}`;
}

export function bytes(size) {
  for (const [unit, name] of [[1e9, "GB"], [1e6, "MB"], [1e3, "kB"]]) if (size >= unit) return `${(size / unit).toFixed(1)} ${name}`;
  return `${size} bytes`;
}

/** A value of a table cell as text. */
export function cell(name, value) {
  if (value === null || value === undefined || (Array.isArray(value) && !value.length)) return "–";
  if (name === "started" || name === "ended" || name === "cleaned") return time(value);
  if (name === "seconds") return duration(value);
  if (name === "seed" || name === "exit_code") return String(value);
  if (name.endsWith("sha256") || name === "git") return String(value).slice(0, 8);
  if (Array.isArray(value)) return value.join(", ");
  return typeof value === "number" ? number(value) : String(value);
}

/** A table from headers and rows of texts or nodes. */
export function plainTable(caption, headers, rows, properties = {}) {
  return h("div", {class: "scroll"}, h("table", {class: "plain", ...properties}, h("caption", {}, caption),
    h("thead", {}, h("tr", {}, headers.map((text) => h("th", {scope: "col"}, text)))),
    h("tbody", {}, rows.map((cells) => h("tr", {}, cells.map((one) => h("td", {}, one)))))));
}

export function button(text, action, properties = {}) {
  return h("button", {type: "button", onclick: action, ...properties}, text);
}

/** A labelled select. */
export function choice(label, options, value, change) {
  const select = h("select", {onchange: () => change(select.value)},
    options.map(([key, text]) => h("option", {value: key, selected: key === value}, text)));
  return h("label", {}, `${label} `, select);
}

/** A command with a button that copies it. */
export function command(text) {
  const done = h("span", {role: "status"});
  return h("span", {class: "command"}, h("code", {}, text),
    button("copy", async () => { try { await navigator.clipboard.writeText(text); done.textContent = " copied"; } catch { done.textContent = " select and copy it"; } },
      {"aria-label": `copy ${text}`}), done);
}

export function save(name, content, type) {
  const link = h("a", {href: URL.createObjectURL(content instanceof Blob ? content : new Blob([content], {type})), download: name});
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}

/** Call an action once things have been quiet for a while: for typing. */
export function settle(action, wait) {
  let timer = null;
  return (...words) => { clearTimeout(timer); timer = setTimeout(() => action(...words), wait); };
}

/** Call an action soon, and at most once per wait however often it is asked for: for events that keep coming. */
export function atMost(action, wait) {
  let timer = null;
  return () => { if (timer === null) timer = setTimeout(() => { timer = null; action(); }, typeof wait === "function" ? wait() : wait); };
}
