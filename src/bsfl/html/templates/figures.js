"use strict";
/* Draw the panels of every figure, and let the buttons of its legend show and hide marks. */
for (const figure of document.querySelectorAll("figure[data-plot]")) {
  const panels = JSON.parse(figure.querySelector("script").textContent);
  const places = [...figure.querySelectorAll(".panel")];
  places.forEach((place, i) => Plotly.newPlot(place, panels[i].data, panels[i].layout, panels[i].config));
  for (const button of figure.querySelectorAll(".legend button")) {
    button.addEventListener("click", () => {
      const visible = button.getAttribute("aria-pressed") !== "true";
      button.setAttribute("aria-pressed", String(visible));
      panels.forEach((panel, i) => {
        const own = panel.data.flatMap((trace, j) => (trace.legendgroup === button.dataset.label ? [j] : []));
        if (own.length) Plotly.restyle(places[i], { visible }, own);
      });
    });
  }
}
