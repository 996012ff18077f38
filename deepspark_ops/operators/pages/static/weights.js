// Weights by layer of a watched run: heat maps over layers, and the histograms of a blob. Asked for while they are open.
"use strict";
(() => {
  const part = document.getElementById("weights");
  if (!part) return; // there is no such run
  const controls = document.getElementById("weights_controls");
  const { quantity, blob } = controls.elements;
  const boxes = document.getElementById("weights_charts");
  const table = document.getElementById("weights_table");
  const AGAIN_MS = 10_000; // at the earliest, while the run goes on
  const BINS = 40; // of a drawn column; each moment's bins end elsewhere
  const WORDS = { distance: "Distance of the workers to the center, share of the weights", update: "Movement of the center in a minibatch, share of the weights", size: "Size of the weights (L2)" };

  let weights = null;
  let histograms = null;
  let askedAt = 0;
  const plots = new Map(); // name -> element of the chart

  const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const plain = (text) => text.replaceAll("&", "&amp;").replaceAll("<", "&lt;"); // the library reads some tags in its texts
  const digits = (value) => (value === null || value === undefined ? "-" : String(Number(value.toPrecision(3))));

  // The library sets an empty style attribute on the bar of colours, and the page's policy refuses each style attribute:
  // an empty one is as good as none.
  SVGRectElement.prototype.setAttribute = function setAttribute(name, value) {
    if (name === "style" && value === "") this.removeAttribute(name);
    else Element.prototype.setAttribute.call(this, name, value);
  };

  async function answer(query = "") {
    const response = await fetch(part.dataset.url + query, { headers: { accept: "application/json" }, cache: "no-store" });
    if (!response.ok) throw new Error(String(response.status));
    return response.json();
  }

  async function ask() {
    if (!part.open || Date.now() - askedAt < AGAIN_MS) return;
    askedAt = Date.now();
    try {
      weights = await answer();
      const hasDistance = weights.workers.length > 0; // one worker, and workers that push gradients, have none
      quantity.options[0].hidden = !hasDistance;
      if (!hasDistance && quantity.value === "distance") quantity.value = "update";
      const chosen = blob.value;
      blob.replaceChildren(...weights.blobs.map((name) => new Option(name, name, false, name === chosen)));
      await askBlob();
    } catch { askedAt = 0; /* the next news asks again */ }
  }

  async function askBlob() {
    if (blob.value) histograms = await answer(`?blob=${encodeURIComponent(blob.value)}`);
    draw();
  }

  function plotOf(name, title) {
    let plot = plots.get(name);
    if (!plot) {
      const box = document.createElement("div");
      box.className = "chart";
      plot = document.createElement("div");
      plot.className = "plot tall";
      plot.setAttribute("role", "img");
      box.append(document.createElement("h2"), plot);
      boxes.append(box);
      plots.set(name, plot);
    }
    plot.previousElementSibling.textContent = title;
    return plot;
  }

  // Shares span powers of ten, so their colour is by the logarithm; the text of a cell is the number itself.
  function heatMap(name, title, { x, y, rows, xTitle, yTitle, isLog, isText }) {
    const plot = plotOf(name, title);
    const known = rows.flat().filter((value) => value !== null && (!isLog || value > 0));
    plot.parentElement.hidden = known.length === 0;
    if (!known.length) return null;
    const z = rows.map((row) => row.map((value) => (value === null || (isLog && value <= 0) ? null : isLog ? Math.log10(value) : value)));
    const low = known.reduce((a, b) => Math.min(a, b), Infinity);
    const high = known.reduce((a, b) => Math.max(a, b), -Infinity);
    plot.setAttribute("aria-label", `${title}: from ${digits(low)} to ${digits(high)}. The table below has the last numbers.`);
    const ticks = isLog ? [Math.log10(low), (Math.log10(low) + Math.log10(high)) / 2, Math.log10(high)] : [low, (low + high) / 2, high];
    const trace = {
      type: "heatmap", xgap: 1, ygap: yTitle ? 0 : 1, // without any gap the library sets a style that the page's policy refuses
      x, y: y.map((label) => (typeof label === "string" ? plain(label) : label)), z, hoverongaps: false, colorscale: "Cividis",
      text: rows.map((row) => row.map(digits)), hovertemplate: `%{y}<br>${xTitle} %{x}<br>%{text}<extra></extra>`,
      colorbar: { thickness: 10, outlinewidth: 0, tickvals: ticks, ticktext: ticks.map((tick) => digits(isLog ? 10 ** tick : tick)) },
    };
    Plotly.react(plot, [trace], {
      paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", autosize: true, margin: { l: 10, r: 10, t: 8, b: 36 },
      font: { color: css("--soft"), size: 11, family: getComputedStyle(document.body).fontFamily },
      hoverlabel: { bgcolor: css("--card"), bordercolor: css("--rule"), font: { color: css("--ink"), size: 11 } },
      xaxis: { title: { text: xTitle, standoff: 4, font: { size: 10.5 } }, zeroline: false, showgrid: false, type: isText ? "category" : "linear" },
      yaxis: { title: yTitle ? { text: yTitle } : undefined, zeroline: false, showgrid: false, automargin: true, ...(yTitle ? {} : { type: "category", autorange: "reversed" }) },
    }, { displayModeBar: false, responsive: true });
    return plot;
  }

  const transposed = (rows, n) => Array.from({ length: n }, (_, at) => rows.map((row) => row[at]));

  // The counts of moments with bins of their own, spread over common bins: shares of a moment's values.
  function spread(column) {
    const present = column.filter((histogram) => histogram);
    if (!present.length) return null;
    const low = present.reduce((least, [start]) => Math.min(least, start), Infinity);
    const width = (present.reduce((most, [, end]) => Math.max(most, end), -Infinity) - low) / BINS || 1;
    const y = Array.from({ length: BINS }, (_, at) => low + (at + 0.5) * width);
    const shares = column.map((histogram) => {
      if (!histogram) return y.map(() => null);
      const [start, end, counts] = histogram;
      const total = counts.reduce((a, b) => a + b, 0);
      const step = (end - start) / counts.length;
      return y.map((_, at) => {
        const [from, to] = [low + at * width, low + (at + 1) * width];
        return counts.reduce((sum, count, bin) => {
          const overlap = Math.min(to, start + (bin + 1) * step) - Math.max(from, start + bin * step);
          return overlap > 0 ? sum + (count * overlap) / step / total : sum;
        }, 0);
      });
    });
    return { y, rows: transposed(shares, BINS) };
  }

  function drawTable() {
    const at = weights.clock.length - 1;
    const workers = weights.workers;
    const heads = ["layer and blob", "size (L2)", "movement in a minibatch", "distance, mean", ...workers.map((row) => `worker ${row.worker}`)];
    const cell = (kind, text, isNumber) => Object.assign(document.createElement(kind), { textContent: text, className: isNumber ? "n" : "" });
    const row = (cells) => { const made = document.createElement("tr"); made.append(...cells); return made; };
    const made = document.createElement("table");
    made.createCaption().textContent = `The last numbers, at iteration ${weights.clock[at].toLocaleString("en")}; of each worker at ${weights.workers_clock.toLocaleString("en")}. Movement and distances are shares of the weights' size.`;
    made.createTHead().append(row(heads.map((head, place) => cell("th", head, place > 0))));
    made.createTBody().append(...weights.blobs.map((name, place) => row([cell("th", name), ...[
      weights.size[at][place], weights.update[at][place], weights.distance[at][place], ...workers.map((worker) => worker.distance[place]),
    ].map((value) => cell("td", digits(value), true))])));
    table.replaceChildren(made);
  }

  function draw() {
    if (!weights || !part.open || typeof Plotly === "undefined") return;
    const { blobs, clock } = weights;
    const rows = transposed(weights[quantity.value], blobs.length);
    const byLayer = { y: blobs, xTitle: "iterations (all workers)", isLog: true };
    const plot = heatMap("all", WORDS[quantity.value], { ...byLayer, x: clock, rows });
    if (plot && !plot.dataset.leads) {
      plot.dataset.leads = "1";
      plot.on("plotly_click", (click) => { blob.selectedIndex = click.points[0].pointIndex[0]; askBlob().catch(() => {}); });
    }
    const workers = weights.workers.map((row) => row.worker);
    heatMap("workers", `Distance of each worker at iteration ${weights.workers_clock.toLocaleString("en")}, share of the weights`,
      { ...byLayer, x: workers.map(String), rows: transposed(weights.workers.map((row) => row.distance), blobs.length), xTitle: "worker", isText: true });
    for (const [name, word] of [["values", "Values"], ["updates", "Movement since the moment before"]]) {
      const columns = histograms && spread(histograms[name]);
      heatMap(name, `${word} of ${histograms?.blob ?? ""}, share in each bin`,
        { x: histograms?.clock ?? [], y: columns?.y ?? [], rows: columns?.rows ?? [], xTitle: "iterations (all workers)", yTitle: "value" });
    }
    drawTable();
  }

  controls.addEventListener("submit", (event) => event.preventDefault());
  quantity.addEventListener("change", draw);
  blob.addEventListener("change", () => { askBlob().catch(() => {}); });
  part.addEventListener("toggle", () => { ask(); draw(); });
  addEventListener("themed", draw);
  addEventListener("run_news", (event) => { part.hidden = !event.detail.has_weights; if (event.detail.is_whole || event.detail.lines.length) ask(); });
})();
