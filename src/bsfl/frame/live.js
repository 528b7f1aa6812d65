"use strict";
/* Draw the page anew every few seconds, with what the server says by then; how tables are sorted,
   what is folded open and where a reader is stay as they are. */
(() => {
  const PAUSE_MS = 3000;
  const status = () => document.getElementById("live");

  /* What a reader folded open or closed; the part that is marked as the latest is open by itself. */
  function folded(root) {
    const all = [...root.querySelectorAll("details[id]")];
    return all.filter((one) => one.open !== one.hasAttribute("data-latest"))
      .map((one) => [one.id, one.open]);
  }

  async function update() {
    const field = document.activeElement;
    const isBusy = field && field.tagName === "INPUT";
    try {
      const response = await fetch(location.href, { cache: "no-store" });
      if (!response.ok) throw new Error(response.statusText);
      const fresh = new DOMParser().parseFromString(await response.text(), "text/html").querySelector("main");
      if (!isBusy && !document.hidden) {
        const main = document.querySelector("main"), known = folded(main);
        const focus = field && field.id ? field.id : null;
        main.replaceChildren(...fresh.childNodes);
        for (const [id, isOpen] of known) document.getElementById(id)?.toggleAttribute("open", isOpen);
        bsflTables.enhance(main);
        if (focus) document.getElementById(focus)?.focus({ preventScroll: true });
      }
      status().textContent = `live, as of ${new Date().toLocaleTimeString("en-GB")}`;
      status().classList.remove("warn");
    } catch {
      status().textContent = "no response from bsfl watch: this page is out of date";
      status().classList.add("warn");
    }
    setTimeout(update, PAUSE_MS);
  }
  setTimeout(update, PAUSE_MS);
})();
