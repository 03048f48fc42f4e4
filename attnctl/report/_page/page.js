"use strict";
// Draws each figure when it comes into view, in the colours of the page, and again when those change.
(() => {
  const { figures, tips } = JSON.parse(document.getElementById("figures").textContent);
  const told = (value) => (Array.isArray(value) ? value.map(told) : tips[value]);
  for (const { data } of figures) {
    for (const trace of data) if (trace.customdata) trace.customdata = told(trace.customdata);
  }
  const drawn = new Map();

  function theme() {
    const style = getComputedStyle(document.documentElement);
    const colour = (name) => style.getPropertyValue(name).trim();
    const axis = { gridcolor: colour("--line"), linecolor: colour("--line"), tickcolor: colour("--line") };
    return {
      layout: {
        paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
        font: { color: colour("--ink"), family: getComputedStyle(document.body).fontFamily, size: 12 },
        hoverlabel: { bgcolor: colour("--raised"), bordercolor: colour("--line"), font: { color: colour("--ink"), size: 12 }, align: "left" },
        margin: { l: 48, r: 12, t: 12, b: 40 }, autosize: true, dragmode: false,
      },
      axis,
    };
  }

  function layout(figure) {
    const now = theme();
    const merged = { ...now.layout, ...structuredClone(figure.layout), height: figure.height };
    for (const name of ["xaxis", "yaxis"]) merged[name] = { ...now.axis, ...merged[name] };
    return merged;
  }

  function draw(element) {
    const figure = figures.find((each) => each.id === element.id);
    if (!figure || drawn.has(element)) return;
    drawn.set(element, figure);
    // The scale of a heat map and its legend do not fit side by side on a phone; the cells have numbers.
    if (innerWidth < 600) for (const trace of figure.data) if (trace.type === "heatmap") trace.showscale = false;
    Plotly.newPlot(element, figure.data, layout(figure), { responsive: true, displayModeBar: false });
  }

  const watcher = new IntersectionObserver((entries) => {
    for (const entry of entries) {
      if (!entry.isIntersecting) continue;
      watcher.unobserve(entry.target);
      draw(entry.target);
    }
  }, { rootMargin: "400px" });
  const elements = document.querySelectorAll(".figure");
  for (const element of elements) watcher.observe(element);

  addEventListener("beforeprint", () => elements.forEach(draw));
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
    for (const [element, figure] of drawn) Plotly.react(element, figure.data, layout(figure));
  });
})();
