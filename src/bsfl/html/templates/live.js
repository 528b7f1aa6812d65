"use strict";
/* Replace the parts of the page that have changed, every few seconds. How tables are sorted, what is
   folded open and which client is selected stay as they are. */
(() => {
  const PAUSE_MS = 2000;
  const part = (name) => document.getElementById(`part-${name}`);
  const status = document.getElementById("live"), found = document.getElementById("found");
  let selected = found.querySelector("[data-selected]")?.dataset.selected ?? null;

  async function get(path) {
    const response = await fetch(path, { cache: "no-store", signal: AbortSignal.timeout(20000) });
    if (!response.ok) throw new Error(response.statusText);
    return response.json();
  }

  /* What a reader folded open or closed; the part that is marked as the latest is open by itself. */
  function folded(root) {
    return [...root.querySelectorAll("details[id]")]
      .filter((one) => one.open !== one.hasAttribute("data-latest")).map((one) => [one.id, one.open]);
  }

  function put(place, html) {
    const known = folded(place);
    place.innerHTML = html;
    for (const [id, isOpen] of known) document.getElementById(id)?.toggleAttribute("open", isOpen);
    bsflTables.enhance(place);
  }

  function mark() {
    for (const one of document.querySelectorAll("circle.selected")) one.classList.remove("selected");
    if (selected !== null) document.querySelector(`circle[data-row="${selected}"]`)?.classList.add("selected");
  }

  async function show() {
    const { html } = await get(`/client?row=${selected}`);
    if (found.innerHTML !== html) found.innerHTML = html;
    mark();
  }

  async function update() {
    try {
      if (!document.hidden) {
        const places = [...document.querySelectorAll("[data-digest]")];
        const have = places.map((one) => `${one.id.slice(5)}:${one.dataset.digest}`).join(",");
        const { parts, has_spans } = await get(`/parts?have=${have}`);
        for (const [name, [digest, html]] of Object.entries(parts)) {
          put(part(name), html);
          part(name).dataset.digest = digest;
        }
        document.getElementById("spans").hidden = !has_spans;
        if (selected !== null) await show();
      }
      status.textContent = `live, as of ${new Date().toLocaleTimeString("en-GB")}`;
      status.classList.remove("warn");
    } catch {
      status.textContent = "no response from bsfl watch: this page is out of date";
      status.classList.add("warn");
    }
    setTimeout(update, PAUSE_MS);
  }

  part("clients").addEventListener("click", (event) => {
    const row = event.target.dataset.row;
    if (row === undefined) return;
    selected = row;
    show().catch(() => {});
  });
  mark();
  setTimeout(update, PAUSE_MS);
})();
