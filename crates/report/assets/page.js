// The page of a report. All texts of the data are set as text, never as markup.
"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const byId = id => document.getElementById(id);
  const COLOURS = ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#7F6BB5", "#8B96A3"];

  const make = (tag, attributes = {}, ...children) => {
    const element = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) {
      if (name === "text") element.textContent = value;
      else if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
      else if (value !== null && value !== undefined) element.setAttribute(name, value);
    }
    element.append(...children);
    return element;
  };
  const draw = (tag, attributes, text) => {
    const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
    for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
    if (text !== undefined) element.textContent = text;
    return element;
  };
  const round = (value, digits = 4) => {
    if (!Number.isFinite(value)) return "";
    if (Number.isInteger(value) && Math.abs(value) < 1e15) return value.toLocaleString("en-US");
    if (value !== 0 && (Math.abs(value) >= 1e9 || Math.abs(value) < 1e-4)) return value.toExponential(digits - 1);
    return Number(value.toPrecision(digits)).toLocaleString("en-US", { maximumSignificantDigits: digits });
  };

  // ---- theme: the system's, or the reader's choice -------------------------------------------------------------
  byId("theme").addEventListener("click", () => {
    const root = document.documentElement;
    const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
    root.dataset.theme = dark ? "light" : "dark";
  });
  byId("print").addEventListener("click", () => window.print());

  // ---- a word beside the pointer, or beside what has the focus ---------------------------------------------------
  const tip = byId("tip");
  const showTip = (text, x, y) => {
    tip.textContent = text;
    tip.hidden = false;
    const box = tip.getBoundingClientRect();
    tip.style.left = Math.max(8, Math.min(x + 14, innerWidth - box.width - 8)) + "px";
    tip.style.top = (y + 18 + box.height > innerHeight ? Math.max(8, y - box.height - 12) : y + 18) + "px";
  };
  const hideTip = () => { tip.hidden = true; };
  document.addEventListener("keydown", event => { if (event.key === "Escape") { hideTip(); choose(null); } });

  // ---- the plot: one stop for the keyboard, arrows go from dot to dot ----------------------------------------------
  const W = 760, H = 470, L = 64, R = 16, T = 16, B = 48;
  const plot = data.plot, svg = byId("plot");
  let chosen = null;
  const circles = [];
  const place = (axis, value, from, to) => {
    const of = axis.log ? Math.log10 : v => v;
    return from + (of(value) - of(axis.low)) / (of(axis.high) - of(axis.low)) * (to - from);
  };
  const x = value => place(plot.x, value, L, W - R), y = value => place(plot.y, value, H - B, T);
  const colour = kind => COLOURS[kind % COLOURS.length];
  const drawPlot = () => {
    for (const [value, text] of plot.x.ticks) {
      svg.append(draw("line", { class: "grid", x1: x(value), x2: x(value), y1: T, y2: H - B }), draw("text", { x: x(value), y: H - B + 18, "text-anchor": x(value) > W - R - 12 ? "end" : "middle" }, text));
    }
    for (const [value, text] of plot.y.ticks) {
      svg.append(draw("line", { class: "grid", x1: L, x2: W - R, y1: y(value), y2: y(value) }), draw("text", { x: L - 8, y: y(value) + 4, "text-anchor": "end" }, text));
    }
    svg.append(draw("text", { x: (W + L) / 2, y: H - 8, "text-anchor": "middle" }, plot.x.caption), draw("text", { x: 14, y: (H - B) / 2, transform: `rotate(-90 14 ${(H - B) / 2})`, "text-anchor": "middle" }, plot.y.caption));
    plot.curves.forEach((curve, i) => {
      const group = draw("g", {}), path = curve.points.map(([a, b], j) => `${j ? "L" : "M"}${x(a)} ${y(b)}`).join("");
      group.append(draw("path", { class: "curve", stroke: colour(curve.kind ?? i), d: path }));
      // A roof is named left of its ridge, where no dot lies.
      if (curve.kind === null && curve.points.length) group.append(draw("text", { x: x(curve.points.at(-2)[0]) - 8, y: Math.max(14, y(curve.points.at(-2)[1]) + 4), "text-anchor": "end" }, curve.name));
      svg.append(group);
      const box = make("input", { type: "checkbox", id: `curve${i}`, checked: "" });
      box.addEventListener("change", () => {
        group.toggleAttribute("hidden", !box.checked);
        plot.dots.forEach((dot, j) => { if (dot.kind === curve.kind) circles[j].toggleAttribute("hidden", !box.checked); });
      });
      byId("curves").append(make("span", { class: "chip" }, box, make("label", { for: `curve${i}`, text: curve.name })));
    });
    plot.dots.forEach((dot, i) => {
      const circle = draw("circle", { cx: x(dot.x), cy: y(dot.y), r: 4 + 20 * Math.sqrt(dot.area), fill: colour(dot.kind), stroke: colour(dot.kind) });
      circle.addEventListener("mousemove", event => showTip(dot.words, event.clientX, event.clientY));
      circle.addEventListener("mouseleave", hideTip);
      circle.addEventListener("click", () => choose(chosen === i ? null : i));
      circles.push(circle);
      svg.append(circle);
    });
    mark();
  };
  const mark = () => {
    circles.forEach((circle, i) => circle.classList.toggle("chosen", i === chosen));
    byId("chosen").textContent = chosen === null ? "Nothing chosen." : plot.dots[chosen].words.replaceAll("\n", "; ");
    byId("unchoose").hidden = chosen === null;
  };
  // What is chosen filters the tables.
  function choose(i) {
    if (!plot.dots.length) return;
    chosen = i;
    mark();
    byId("search").value = i === null ? "" : plot.dots[i].filter;
    sheet.filter();
  }
  svg.addEventListener("keydown", event => {
    const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
    if (!step || !plot.dots.length) return;
    event.preventDefault();
    const next = chosen === null ? 0 : (chosen + step + plot.dots.length) % plot.dots.length;
    choose(next);
    const box = circles[next].getBoundingClientRect();
    showTip(plot.dots[next].words, box.right, box.top);
  });
  svg.addEventListener("blur", hideTip);
  byId("unchoose").addEventListener("click", () => choose(null));
  plot.kinds.forEach((kind, i) => {
    const dot = make("i", { style: `background:${colour(i)}` });
    byId("kinds").append(make("li", {}, dot, kind || "other"));
  });

  // ---- tables: only the rows in sight are in the document -----------------------------------------------------------
  const sheet = {
    table: null, order: [], column: -1, down: true, height: 28, shown: [-1, -1],
    value(column, row) {
      const cell = column.cells[row];
      return column.text ? (cell === null ? null : data.strings[cell]) : cell;
    },
    text(column, row) {
      const value = this.value(column, row);
      if (column.shown && column.shown[row] !== null) return data.strings[column.shown[row]];
      // Characters that are not seen, or turn what follows, show themselves.
      return value === null ? "" : typeof value === "number" ? round(value, column.digits) : value.replace(/[\u0000-\u001f\u007f-\u009f\u2028-\u202e\u2066-\u2069]/g, "\ufffd");
    },
    open(name) {
      this.table = data.tables.find(table => table.name === name) || data.tables[0];
      this.column = -1;
      this.head();
      this.filter();
    },
    head() {
      const row = byId("head");
      row.replaceChildren();
      this.table.columns.forEach((column, i) => {
        const sorted = this.column === i ? (this.down ? "descending" : "ascending") : "none";
        const arrow = this.column === i ? (this.down ? " ▼" : " ▲") : "";
        const button = make("button", { type: "button", text: column.name + arrow, title: column.name, onclick: () => this.sort(i) });
        row.append(make("th", { scope: "col", "aria-sort": sorted, class: column.right ? "right" : null }, button));
      });
    },
    sort(i) {
      this.down = this.column === i ? !this.down : this.table.columns[i].right;
      this.column = i;
      this.head();
      this.filter();
      byId("head").children[i].firstChild.focus();
    },
    filter() {
      if (!this.table) return;
      const words = byId("search").value.toLowerCase().split(/\s+/).filter(Boolean);
      const rows = this.table.columns.length ? this.table.columns[0].cells.length : 0;
      // A word is a part of a text, or a whole number.
      const holds = (column, row, word) => {
        const value = this.value(column, row);
        return column.text ? (value || "").toLowerCase().includes(word) : String(value) === word;
      };
      const fits = row => words.every(word => this.table.columns.some(column => holds(column, row, word)));
      this.order = [];
      for (let row = 0; row < rows; ++row) if (!words.length || fits(row)) this.order.push(row);
      const column = this.table.columns[this.column];
      if (column) {
        const sign = this.down ? -1 : 1;
        this.order.sort((a, b) => {
          const x = this.value(column, a), y = this.value(column, b);
          if (x === null || y === null) return (x === null) - (y === null);
          return sign * (typeof x === "number" && typeof y === "number" ? x - y : String(x).localeCompare(String(y)));
        });
      }
      byId("count").textContent = `${round(this.order.length)} of ${round(rows)} rows`;
      this.shown = [-1, -1];
      // What is left may be shorter than where the reader was.
      byId("frame").scrollTop = 0;
      this.render(false);
    },
    render(all) {
      if (!this.table) return;
      const frame = byId("frame");
      const first = all ? 0 : Math.max(0, Math.floor(frame.scrollTop / this.height) - 10);
      const last = all ? this.order.length : Math.min(this.order.length, first + Math.ceil(frame.clientHeight / this.height) + 30);
      if (this.shown[0] === first && this.shown[1] === last) return;
      this.shown = [first, last];
      const body = byId("body");
      const gap = rows => make("tr", { "aria-hidden": "true" }, make("td", { colspan: this.table.columns.length, style: `height:${rows * this.height}px;padding:0;border:0` }));
      const rows = [];
      if (first > 0) rows.push(gap(first));
      for (const row of this.order.slice(first, last)) {
        const tr = make("tr");
        for (const column of this.table.columns) {
          const text = this.text(column, row);
          tr.append(make("td", { class: column.right ? "right" : null, title: text.length > 40 ? text : null, text: text === "" ? "–" : text, "data-empty": text === "" ? "" : null }));
        }
        rows.push(tr);
      }
      if (last < this.order.length) rows.push(gap(this.order.length - last));
      body.replaceChildren(...rows);
    },
    csv() {
      const quoted = text => /[",\n\r]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
      const lines = [this.table.columns.map(column => quoted(column.name)).join(",")];
      for (const row of this.order) lines.push(this.table.columns.map(column => quoted(String(this.value(column, row) ?? ""))).join(","));
      const link = make("a", { href: URL.createObjectURL(new Blob([lines.join("\n") + "\n"], { type: "text/csv" })), download: `${this.table.name}.csv` });
      link.click();
      URL.revokeObjectURL(link.href);
    },
  };
  for (const table of data.tables) byId("which").append(make("option", { value: table.name, text: `${table.name} (${round(table.columns.length ? table.columns[0].cells.length : 0)})` }));
  byId("which").addEventListener("change", event => sheet.open(event.target.value));
  let waiting = 0;
  byId("search").addEventListener("input", () => { clearTimeout(waiting); waiting = setTimeout(() => sheet.filter(), 80); });
  byId("frame").addEventListener("scroll", () => sheet.render(false), { passive: true });
  byId("export").addEventListener("click", () => sheet.csv());
  // On paper every row of what was found, up to a number of pages that somebody would read.
  addEventListener("beforeprint", () => { if (sheet.order.length <= 400) { sheet.shown = [-1, -1]; sheet.render(true); } });
  addEventListener("afterprint", () => { sheet.shown = [-1, -1]; sheet.render(false); });
  document.querySelectorAll("[data-filter]").forEach(button => button.addEventListener("click", () => {
    byId("search").value = button.dataset.filter;
    sheet.filter();
    byId("tables").scrollIntoView();
  }));

  drawPlot();
  if (data.tables.length) { byId("which").value = data.open; sheet.open(data.open); }
  document.documentElement.dataset.ready = Math.round(performance.now());
})();
