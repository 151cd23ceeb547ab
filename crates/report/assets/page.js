// The page of a report. All texts of the data are set as text, never as markup.
"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const byId = id => document.getElementById(id);
  const COLOURS = ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9"];

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
    return Number(value.toPrecision(Math.max(digits, 4))).toLocaleString("en-US", { maximumSignificantDigits: Math.max(digits, 4) });
  };

  const SI = ["", "k", "M", "G", "T", "P", "E"];
  const si = value => {
    const step = Math.max(0, Math.min(SI.length - 1, Math.floor(Math.log10(value) / 3)));
    return `${round(value / 1000 ** step)} ${SI[step]}`.trim();
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

  // ---- the roofline: one stop for the keyboard, arrows go from product to product ----------------------------------
  const W = 760, H = 470, L = 64, R = 16, T = 16, B = 48;
  let chosen = null;
  const circles = [];
  const shownChips = new Set(data.chips.map((_, i) => i));
  const describe = point => [point.name, point.detail, `${round(point.ms)} ms in all, ${round(point.count)} times`,
    `${round(point.speed / 1e12)} TFLOP/s at ${round(point.intensity)} FLOP/B`,
    point.roof === null ? "" : `${round(point.roof, 3)} % of the roof, ${round(point.lost)} ms could be saved`].filter(Boolean).join("\n");
  const roofline = () => {
    const svg = byId("roofline");
    svg.replaceChildren();
    circles.length = 0;
    const points = data.points, chips = data.chips.filter((_, i) => shownChips.has(i));
    if (!points.length) return;
    const lows = points.map(p => p.intensity), speeds = points.map(p => p.speed);
    const ridges = chips.map(c => c.peak / c.bandwidth);
    const x0 = Math.floor(Math.log10(Math.min(...lows, ...ridges))), x1 = Math.ceil(Math.log10(Math.max(...lows, ...ridges.map(r => r * 4))));
    const y0 = Math.floor(Math.log10(Math.min(...speeds))), y1 = Math.ceil(Math.log10(Math.max(...speeds, ...chips.map(c => c.peak))));
    const x = v => L + (Math.log10(v) - x0) / Math.max(1, x1 - x0) * (W - L - R), y = v => H - B - (Math.log10(v) - y0) / Math.max(1, y1 - y0) * (H - T - B);
    for (let e = x0; e <= x1; ++e) {
      svg.append(draw("line", { class: "grid", x1: x(10 ** e), x2: x(10 ** e), y1: T, y2: H - B }), draw("text", { x: x(10 ** e), y: H - B + 18, "text-anchor": e === x1 ? "end" : "middle" }, round(10 ** e)));
    }
    for (let e = y0; e <= y1; ++e) {
      svg.append(draw("line", { class: "grid", x1: L, x2: W - R, y1: y(10 ** e), y2: y(10 ** e) }), draw("text", { x: L - 8, y: y(10 ** e) + 4, "text-anchor": "end" }, si(10 ** e)));
    }
    svg.append(draw("text", { x: (W + L) / 2, y: H - 8, "text-anchor": "middle" }, "FLOPs per byte"), draw("text", { x: 14, y: (H - B) / 2, transform: `rotate(-90 14 ${(H - B) / 2})`, "text-anchor": "middle" }, "FLOP/s"));
    data.chips.forEach((chip, i) => {
      if (!shownChips.has(i)) return;
      const ridge = chip.peak / chip.bandwidth, left = 10 ** x0, right = 10 ** x1;
      const low = Math.max(left, 10 ** y0 / chip.bandwidth);
      svg.append(draw("path", { class: "roof", stroke: COLOURS[i % COLOURS.length], d: `M${x(low)} ${y(low * chip.bandwidth)}L${x(ridge)} ${y(chip.peak)}L${x(right)} ${y(chip.peak)}` }));
      svg.append(draw("text", { x: W - R - 4, y: y(chip.peak) - 6, "text-anchor": "end" }, chip.name));
    });
    const most = Math.max(...points.map(p => p.ms));
    points.forEach((point, i) => {
      const circle = draw("circle", { cx: x(point.intensity), cy: y(point.speed), r: 4 + 20 * Math.sqrt(point.ms / most), fill: COLOURS[point.colour % COLOURS.length], stroke: COLOURS[point.colour % COLOURS.length] });
      circle.addEventListener("mousemove", event => showTip(describe(point), event.clientX, event.clientY));
      circle.addEventListener("mouseleave", hideTip);
      circle.addEventListener("click", () => choose(chosen === i ? null : i));
      circles.push(circle);
      svg.append(circle);
    });
    mark();
  };
  const mark = () => {
    circles.forEach((circle, i) => circle.classList.toggle("chosen", i === chosen));
    byId("chosen").textContent = chosen === null ? "No product chosen." : describe(data.points[chosen]).replaceAll("\n", "; ");
    byId("unchoose").hidden = chosen === null;
  };
  // A chosen product filters the tables.
  function choose(i) {
    if (!data.points.length) return;
    chosen = i;
    mark();
    byId("search").value = i === null ? "" : data.points[i].filter;
    sheet.filter();
  }
  const plot = byId("roofline");
  plot.addEventListener("keydown", event => {
    const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
    if (!step || !data.points.length) return;
    event.preventDefault();
    const next = chosen === null ? 0 : (chosen + step + data.points.length) % data.points.length;
    choose(next);
    const box = circles[next].getBoundingClientRect();
    showTip(describe(data.points[next]), box.right, box.top);
  });
  plot.addEventListener("blur", hideTip);
  byId("unchoose").addEventListener("click", () => choose(null));
  data.kinds.forEach((kind, i) => {
    const dot = make("i", { style: `background:${COLOURS[i % COLOURS.length]}` });
    byId("kinds").append(make("li", {}, dot, kind || "other"));
  });
  data.chips.forEach((chip, i) => {
    const box = make("input", { type: "checkbox", id: `chip${i}`, checked: "" });
    box.addEventListener("change", () => { box.checked ? shownChips.add(i) : shownChips.delete(i); roofline(); });
    byId("chips").append(make("span", { class: "chip" }, box, make("label", { for: `chip${i}`, text: chip.name })));
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
      return value === null ? "" : typeof value === "number" ? round(value, 6) : value;
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
      const texts = this.table.columns.filter(column => column.text);
      const fits = row => words.every(word => texts.some(column => (this.value(column, row) || "").toLowerCase().includes(word)));
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

  roofline();
  if (data.tables.length) { byId("which").value = data.open; sheet.open(data.open); }
  document.documentElement.dataset.ready = "yes";
})();
