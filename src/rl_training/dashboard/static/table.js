// The runs table: thousands of rows, of which only those on the screen are in the document.
import {get, getChanged, on, post, runPath, session} from "./api.js";
import {atMost, button, cell, h, replace} from "./dom.js";
import {link, state, update} from "./state.js";

const ROW = 31, PAGE = 200, MARGIN = 8;

export class RunsTable {
  constructor({say, onRows, onSelect}) {
    Object.assign(this, {say, onRows, onSelect, pages: new Map(), total: 0, at: -1, anchor: null});
    this.head = h("thead");
    this.body = h("tbody");
    this.table = h("table", {class: "runs", "aria-label": "Runs"}, this.head, this.body);
    this.scroller = h("div", {class: "rows", tabindex: "-1", onscroll: () => this.draw()}, this.table);
    this.count = h("p", {class: "count", role: "status"});
    this.ends = [on("runs", atMost(() => this.load(), 300)), on("resync", () => this.load(true))];
    this.observer = new ResizeObserver(() => this.draw());
    this.observer.observe(this.scroller);
    this.load(true);
  }

  get columns() { return state.columns.split(",").filter(Boolean); }

  /** Ask for the pages on the screen; an answer that has not changed is not sent again. */
  async load(fresh = false) {
    const number = Math.floor(this.scroller.scrollTop / ROW / PAGE);
    if (fresh) this.pages.clear();
    const asked = [state.filter, state.sort, state.columns].join("\n");
    this.asked = asked;
    try {
      const found = await getChanged("runs", {filter: state.filter, sort: state.sort, columns: this.columns.concat("recipe_sha256", "status").filter((n, i, all) => all.indexOf(n) === i).join(","), offset: number * PAGE, limit: PAGE}, {fresh});
      if (!found || asked !== this.asked) return;
      this.pages.clear();
      this.pages.set(number, found.rows);
      this.answer(found);
    } catch (error) {
      if (asked === this.asked) this.failed(error);
    }
  }

  answer(found) {
    this.total = found.total;
    this.all = found.all;
    this.failure = null;
    const counts = Object.entries(found.counts).map(([name, count]) => `${count.toLocaleString("en")} ${name}`).join(", ");
    this.count.textContent = `${found.total.toLocaleString("en")} of ${found.all.toLocaleString("en")} runs${counts ? ` (${counts})` : ""}${state.sel.length ? `, ${state.sel.length} selected` : ""}`;
    this.say(found.notes.join(" "));
    this.draw(true);
    this.onRows(found);
  }

  failed(error) {
    this.failure = error.message;
    this.onRows(null, error.message);
  }

  async page(number) {
    if (this.pages.has(number)) return;
    this.pages.set(number, null);
    try {
      const found = await get("runs", {filter: state.filter, sort: state.sort, columns: this.columns.concat("recipe_sha256").join(","), offset: number * PAGE, limit: PAGE});
      this.pages.set(number, found.rows);
      this.draw(true);
    } catch (error) { this.pages.delete(number); this.say(error.message); }
  }

  row(place) {
    const page = this.pages.get(Math.floor(place / PAGE));
    return page ? page[place % PAGE] : null;
  }

  draw(force = false) {
    const first = Math.max(Math.floor(this.scroller.scrollTop / ROW) - MARGIN, 0);
    const stop = Math.min(first + Math.ceil(this.scroller.clientHeight / ROW) + 2 * MARGIN, this.total);
    if (!force && this.shown && this.shown[0] === first && this.shown[1] === stop) return;
    if (this.body.contains(document.activeElement) && document.activeElement.matches("input[type=text], textarea")) return;
    this.shown = [first, stop];
    for (let place = first; place < stop; place += PAGE) this.page(Math.floor(place / PAGE));
    if (stop > first) this.page(Math.floor((stop - 1) / PAGE));
    this.drawHead();
    const spacer = (rows) => h("tr", {"aria-hidden": "true", class: "spacer"}, h("td", {colspan: this.columns.length + 1, style: {height: `${rows * ROW}px`}}));
    const rows = [];
    for (let place = first; place < stop; place++) rows.push(this.drawRow(place));
    this.table.setAttribute("aria-rowcount", String(this.total + 1));
    replace(this.body, first ? spacer(first) : null, rows, stop < this.total ? spacer(this.total - stop) : null);
  }

  drawHead() {
    const sorted = state.sort.replace("-", "");
    replace(this.head, h("tr", {},
      h("th", {class: "pick"}, h("span", {class: "unseen"}, "selected")),
      this.columns.map((name) => {
        const direction = sorted !== name ? "none" : state.sort.startsWith("-") ? "ascending" : "descending";
        return h("th", {scope: "col", "aria-sort": direction}, button(name.split(".").pop(), () => this.sort(name), {title: `sort by ${name}`}),
          direction === "none" ? null : h("span", {"aria-hidden": "true"}, direction === "ascending" ? " ▲" : " ▼"));
      })));
  }

  sort(name) {
    const next = state.sort === name ? `-${name}` : state.sort === `-${name}` ? "" : name;
    update({sort: next}, {quiet: true});
    this.scroller.scrollTop = 0;
    this.load(true);
  }

  drawRow(place) {
    const row = this.row(place);
    if (!row) return h("tr", {"aria-rowindex": place + 2}, h("td", {colspan: this.columns.length + 1, class: "dim"}, "…"));
    const isSelected = state.sel.includes(row.key);
    return h("tr", {"aria-rowindex": place + 2, "aria-selected": String(isSelected), class: place === this.at ? "at" : null, "data-key": row.key},
      h("td", {class: "pick"}, h("input", {type: "checkbox", checked: isSelected, "aria-label": `select ${row.key}`, onclick: (event) => this.pick(place, event.shiftKey)})),
      this.columns.map((name, i) => h("td", {class: name === "status" ? `status ${String(row.status)}` : typeof row[name] === "number" ? "num" : null}, this.content(row, name, i))));
  }

  content(row, name, i) {
    const text = cell(name, row[name]);
    if (name === "tags" || name === "notes") return this.editable(row, name, text);
    if (name === "status") return h("a", {href: link({view: "run", run: row.key}), title: row.key}, row.cleaned ? `${text}, cleaned` : text);
    if (name === "name" || name === "directory" || i === 0) return h("a", {href: link({view: "run", run: row.key}), title: row.key}, text === "–" ? row.key : text);
    return h("span", {title: text}, text);
  }

  editable(row, name, text) {
    if (session.read_only) return h("span", {title: text}, text);
    const open = (event) => {
      const holder = event.currentTarget.parentNode;
      const input = h("input", {type: "text", value: text === "–" ? "" : String(name === "tags" ? (row.tags || []).join(", ") : row.notes).replaceAll("\n", " ⏎ "), "aria-label": `${name} of ${row.key}`, maxlength: 10000});
      const close = () => { input.remove(); this.draw(true); };
      input.addEventListener("keydown", async (key) => {
        if (key.key === "Escape") close();
        if (key.key !== "Enter") return;
        try {
          await this.change(row, name, input.value);
          close();
        } catch (error) { this.say(error.message); }
      });
      input.addEventListener("blur", () => setTimeout(close, 150));
      replace(holder, input);
      input.focus();
    };
    return h("button", {type: "button", class: "edit", onclick: open, title: text === "–" ? `add ${name}` : text, "aria-label": `edit ${name} of ${row.key}: ${text}`}, text);
  }

  async change(row, name, text) {
    if (name === "tags") {
      const wanted = text.split(",").map((tag) => tag.trim()).filter(Boolean), had = row.tags || [];
      row.tags = (await post(runPath(row.key, "/tags"), {add: wanted.filter((tag) => !had.includes(tag)), remove: had.filter((tag) => !wanted.includes(tag))})).tags;
    } else row.notes = (await post(runPath(row.key, "/notes"), {text: text.replaceAll(" ⏎ ", "\n")})).notes;
    this.say("");
  }

  pick(place, extend = false) {
    const row = this.row(place);
    if (!row) return;
    let chosen = [...state.sel];
    if (extend && this.anchor !== null) {
      for (let i = Math.min(place, this.anchor); i <= Math.max(place, this.anchor); i++) if (this.row(i)) chosen.push(this.row(i).key);
      chosen = [...new Set(chosen)];
    } else chosen = chosen.includes(row.key) ? chosen.filter((key) => key !== row.key) : [...chosen, row.key];
    this.anchor = place;
    update({sel: chosen}, {quiet: true, silent: true});
    this.draw(true);
    this.onSelect();
  }

  move(by) {
    if (!this.total) return;
    this.at = Math.min(Math.max(this.at + by, 0), this.total - 1);
    const top = this.at * ROW;
    if (top < this.scroller.scrollTop) this.scroller.scrollTop = top;
    if (top + 2 * ROW > this.scroller.scrollTop + this.scroller.clientHeight) this.scroller.scrollTop = top + 3 * ROW - this.scroller.clientHeight;
    this.draw(true);
    const tr = this.body.querySelector("tr.at input");
    if (tr) tr.focus({preventScroll: true});
  }

  key(event) {
    if (event.key === "j" || event.key === "ArrowDown") this.move(1);
    else if (event.key === "k" || event.key === "ArrowUp") this.move(-1);
    else if ((event.key === "x" || event.key === " ") && this.at >= 0 && event.target.tagName !== "BUTTON") this.pick(this.at);
    else if (event.key === "Enter" && this.at >= 0 && this.row(this.at) && !["A", "BUTTON"].includes(event.target.tagName)) update({view: "run", run: this.row(this.at).key});
    else return false;
    return true;
  }

  destroy() { this.observer.disconnect(); this.ends.forEach((end) => end()); }
}
