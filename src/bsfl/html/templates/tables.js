"use strict";
/* Tables sort by the heads of their columns, and show more rows on demand. Rows that wait stand in a
   template. enhance(root, kept) may be called again for a part that was drawn anew. */
const bsflTables = (() => {
  const STEP = 100;
  const OTHER = { ascending: "descending", descending: "ascending" };

  function keyOf(row, i) {
    const cell = row.cells[i], key = cell.dataset.key ?? cell.textContent;
    if (key === "") return null; // nothing to sort by: last
    const n = Number(key);
    return Number.isNaN(n) ? key : n;
  }

  function compare(a, b) {
    if (typeof a === "number" && typeof b === "number") return a - b;
    if (typeof a === "number") return -1;
    if (typeof b === "number") return 1;
    return a.localeCompare(b, undefined, { numeric: true });
  }

  function enhanceOne(box, kept) {
    const body = box.querySelector("tbody"), heads = [...box.querySelectorAll("thead th")];
    const waiting = box.querySelector("template");
    const all = [...body.rows, ...(waiting ? waiting.content.querySelectorAll("tr") : [])];
    const state = Object.assign({ column: -1, way: "", shown: STEP, words: "" }, kept.get(box.dataset.name));
    if (box.dataset.name) kept.set(box.dataset.name, state);
    let rows = all;

    function draw() {
      const words = state.words.toLowerCase();
      const found = words ? rows.filter((r) => r.cells[0].textContent.toLowerCase().includes(words)) : rows;
      body.replaceChildren(...found.slice(0, state.shown));
      if (tools) {
        tools.count.textContent = `${Math.min(state.shown, found.length).toLocaleString("en")} of ` +
          `${found.length.toLocaleString("en")} rows`;
        tools.more.hidden = found.length <= state.shown;
      }
    }

    function sort() {
      heads.forEach((head, i) => {
        if (i === state.column) head.setAttribute("aria-sort", state.way);
        else head.removeAttribute("aria-sort");
      });
      if (state.column >= 0) {
        const sign = state.way === "descending" ? -1 : 1;
        const keyed = all.map((row, i) => ({ row, i, key: keyOf(row, state.column) }));
        keyed.sort((a, b) => {
          if (a.key === null || b.key === null) return (a.key === null) - (b.key === null) || a.i - b.i;
          return sign * compare(a.key, b.key) || a.i - b.i;
        });
        rows = keyed.map((one) => one.row);
      }
      draw();
    }

    let tools = null;
    if (waiting) {
      const line = document.createElement("div"), input = document.createElement("input");
      const more = document.createElement("button"), count = document.createElement("span");
      line.className = "tools";
      input.type = "search";
      input.placeholder = "find by name";
      input.setAttribute("aria-label", "find by name");
      input.value = state.words;
      input.addEventListener("input", () => { state.words = input.value; state.shown = STEP; draw(); });
      more.type = "button";
      more.textContent = "show more";
      more.addEventListener("click", () => { state.shown *= 4; draw(); });
      line.append(input, count, more);
      box.prepend(line);
      tools = { count, more };
    }
    heads.forEach((head, i) => head.querySelector("button")?.addEventListener("click", () => {
      state.way = state.column === i ? OTHER[state.way] : head.dataset.first;
      state.column = i;
      sort();
    }));
    sort();
  }

  const kept = new Map();
  function enhance(root) {
    for (const box of root.querySelectorAll(".table")) enhanceOne(box, kept);
  }
  enhance(document);
  return { enhance };
})();
