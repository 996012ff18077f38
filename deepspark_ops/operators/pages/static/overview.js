// Many runs: a scatter of any two columns, and parallel coordinates. A click leads to the run.
"use strict";
(async () => {
  const axes = document.getElementById("axes");
  const scatter = document.getElementById("scatter");
  const parallel = document.getElementById("parallel");
  if (!axes) return;
  const body = document.body;
  const SVG = "http://www.w3.org/2000/svg";
  const MOST_AXES = 9;
  const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const answer = await fetch(body.dataset.url, { headers: { accept: "application/json" } });
  if (!answer.ok) return;
  const { runs, columns, figure, correlations } = await answer.json();
  const byName = new Map(columns.map((column) => [column.name, column]));
  const leadTo = (at) => { location.href = `${body.dataset.site}${runs[at].path}`; };
  const { x, y, colour, logx, logy } = axes.elements;

  // The choice is in the address, so that a link shows the same chart.
  const chosen = new URLSearchParams(location.search);
  const strongest = correlations[0]?.setting ?? columns.find((column) => column.role === "setting")?.name ?? columns[0].name;
  for (const [select, first] of [[x, strongest], [y, figure ?? columns[0].name], [colour, ""]]) {
    if (select === colour) select.add(new Option("none", ""));
    for (const role of ["setting", "figure"]) {
      const group = document.createElement("optgroup");
      group.label = `${role}s`;
      group.append(...columns.filter((column) => column.role === role).map((column) => new Option(column.name, column.name)));
      if (group.children.length) select.append(group);
    }
    const wanted = chosen.get(select.name) ?? first;
    select.value = byName.has(wanted) || wanted === "" ? wanted : first;
  }
  logx.checked = chosen.get("logx") === "1";
  logy.checked = chosen.get("logy") === "1";
  axes.hidden = false;

  // From the worst to the best: a scale that the colour-blind and greyscale prints can tell apart.
  const scale = (share) => `hsl(${250 - 190 * share} 75% ${matchMedia("print").matches || document.documentElement.dataset.theme !== "dark" ? 30 + 22 * share : 55 + 20 * share}%)`;
  function shares(column) {
    const values = column.kind === "number" ? column.values : ranked(column);
    const numbers = values.filter((value) => value !== null);
    const low = numbers.reduce((a, b) => Math.min(a, b), Infinity);
    const high = numbers.reduce((a, b) => Math.max(a, b), -Infinity);
    return values.map((value) => (value === null ? null : high > low ? (value - low) / (high - low) : 0.5));
  }
  function ranked(column) {
    const texts = [...new Set(column.values.filter((value) => value !== null))].sort();
    return column.values.map((value) => (value === null ? null : texts.indexOf(value)));
  }

  function drawScatter() {
    const [cx, cy, cc] = [x, y, colour].map((select) => byName.get(select.value));
    const at = runs.map((_, index) => index).filter((index) => cx.values[index] !== null && cy.values[index] !== null);
    const axis = (column, isLog) => ({
      title: { text: column.name, font: { size: 11 } }, gridcolor: css("--rule"), zeroline: false, automargin: true,
      type: column.kind === "text" ? "category" : isLog ? "log" : "linear",
    });
    const text = at.map((index) => `${runs[index].name}<br>${runs[index].run}${cc ? `<br>${cc.name}: ${cc.values[index] ?? "–"}` : ""}`);
    const numbers = cc ? shares(cc) : null;
    const trace = {
      type: "scatter", mode: "markers", x: at.map((index) => cx.values[index]), y: at.map((index) => cy.values[index]), customdata: at,
      text: text.map((line) => line.replaceAll("&", "&amp;").replaceAll("<br>", "\u0000").replaceAll("<", "&lt;").replaceAll("\u0000", "<br>")),
      hovertemplate: "%{text}<br>%{xaxis.title.text}: %{x}<br>%{yaxis.title.text}: %{y}<extra></extra>",
      marker: { size: 8, opacity: 0.75, color: cc ? at.map((index) => (numbers[index] === null ? css("--soft") : scale(numbers[index]))) : css("--part-0") },
    };
    const layout = {
      paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", autosize: true, margin: { l: 56, r: 12, t: 10, b: 44 }, showlegend: false,
      font: { color: css("--soft"), size: 11, family: getComputedStyle(body).fontFamily }, hovermode: "closest",
      hoverlabel: { bgcolor: css("--card"), bordercolor: css("--rule"), font: { color: css("--ink"), size: 11 } },
      xaxis: axis(cx, logx.checked), yaxis: axis(cy, logy.checked), dragmode: matchMedia("(pointer: coarse)").matches ? false : "zoom",
    };
    const isFirst = !scatter.classList.contains("js-plotly-plot");
    Plotly.react(scatter, [trace], layout, { displayModeBar: false, responsive: true });
    if (isFirst) scatter.on("plotly_click", (event) => leadTo(event.points[0].customdata));
    scatter.setAttribute("role", "img");  // not before: an image needs its label
    scatter.setAttribute("aria-label", `${cy.name} against ${cx.name} of ${at.length} runs; the list of these runs has the numbers.`);
  }

  const make = (name, attributes, ...children) => {
    const element = document.createElementNS(SVG, name);
    for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
    element.append(...children);
    return element;
  };
  const shortText = (text) => (text.length <= 18 ? text : text.includes("/") ? `…${text.slice(-17)}` : `${text.slice(0, 17)}…`);  // a path by its end
  const short = (value) => (typeof value === "number" ? value.toLocaleString("en", { maximumSignificantDigits: 4 }) : shortText(String(value)));

  function drawParallel() {
    const settings = correlations.map((one) => one.setting).filter((name) => byName.has(name));
    const others = columns.filter((column) => column.role === "setting" && !settings.includes(column.name)).map((column) => column.name);
    const names = [...[...settings, ...others].slice(0, MOST_AXES - 1).reverse(), figure ?? columns[0].name];
    const [top, height, left] = [44, 280, 70];
    const step = Math.max(110, Math.floor((parallel.parentElement.clientWidth - 2 * left) / Math.max(1, names.length - 1)));
    const width = left * 2 + step * (names.length - 1);
    const judged = shares(byName.get(names.at(-1)));
    const drawn = names.map((name) => shares(byName.get(name)));
    const place = (axis, share) => `${left + step * axis},${(top + height * (1 - share)).toFixed(1)}`;
    const lines = runs.map((run, at) => {
      const points = drawn.map((values, axis) => [axis, values[at]]).filter(([, share]) => share !== null);
      if (points.length < 2) return null;
      const line = make("polyline", {
        points: points.map(([axis, share]) => place(axis, share)).join(" "), class: "run-line",
        stroke: judged[at] === null ? css("--rule") : scale(judged[at]), "data-run": at,
      }, make("title", {}, `${run.name}\n${run.run}`));
      return line;
    }).filter(Boolean);
    const heads = names.map((name, axis) => {
      const column = byName.get(name);
      const present = column.values.filter((value) => value !== null);
      const [low, high] = column.kind === "number"
        ? [present.reduce((a, b) => Math.min(a, b), Infinity), present.reduce((a, b) => Math.max(a, b), -Infinity)]
        : [[...new Set(present)].sort()[0], [...new Set(present)].sort().at(-1)];
      const label = (y, text, kind) => make("text", { x: left + step * axis, y, "text-anchor": "middle", class: kind }, text);
      return make("g", {},
        make("line", { x1: left + step * axis, x2: left + step * axis, y1: top, y2: top + height, class: "axis-line" }),
        label(14, short(name), "axis-name"), label(top - 10, present.length ? short(high) : "", "axis-end"), label(top + height + 18, present.length ? short(low) : "", "axis-end"));
    });
    const svg = make("svg", { viewBox: `0 0 ${width} ${top + height + 28}`, width, height: top + height + 28, role: "img",
      "aria-label": `Parallel coordinates of ${lines.length} runs over ${names.join(", ")}; the list of these runs has the numbers.` }, ...lines, ...heads);
    svg.addEventListener("click", (event) => { const at = event.target.closest("polyline")?.dataset.run; if (at !== undefined) leadTo(Number(at)); });
    parallel.replaceChildren(svg);
  }

  function draw() { drawParallel(); drawScatter(); }
  axes.addEventListener("submit", (event) => event.preventDefault());
  axes.addEventListener("change", () => {
    const address = new URL(location.href);
    for (const select of [x, y, colour]) address.searchParams.set(select.name, select.value);
    for (const box of [logx, logy]) address.searchParams.set(box.name, box.checked ? "1" : "0");
    history.replaceState(null, "", address);
    drawScatter();
  });
  addEventListener("themed", draw);
  draw();
  // Also where the page gets narrower by a scroll bar, which is no event of the window.
  new ResizeObserver(() => { Plotly.Plots.resize(scatter); drawParallel(); }).observe(scatter);
})();
