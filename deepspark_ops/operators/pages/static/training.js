// The page Training: asks for what is new every two seconds while the run goes on, and draws it.
"use strict";
(() => {
  const body = document.body;
  const url = body.dataset.url;
  const pollMs = Number(body.dataset.pollMs);
  const LONGEST_LINE = 3000; // points that came one by one; past this the whole run is asked for again, thinned out
  const MARKS_DRAWN = 60;
  const TABLE_ROWS = 12;
  // Okabe and Ito's colours, told apart by people with any colour vision; lines past the eighth differ by their dashes.
  const COLOURS = {
    light: ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#b58900", "#56b4e9", "#7a5195", "#5a6b7b"],
    dark: ["#56b4e9", "#e69f00", "#2fc79a", "#e19bc4", "#f0e442", "#4f9dff", "#c3a6ff", "#a9b8c6"],
  };
  const DASHES = ["solid", "dash", "dot", "dashdot"];
  const SYMBOLS = ["circle", "square", "diamond", "triangle-up", "x", "star"];
  const MARKS = { lost: "x", joined: "triangle-up", restarted: "triangle-up-open", server: "star", snapshot: "diamond", started: "circle" };
  const controls = document.getElementById("controls");
  const news = document.getElementById("news");
  if (!controls) return; // there is no such run

  let run = null; // the last answer
  let lines = new Map(); // "chart\u0000name" -> line with all its points
  let charts = new Map(); // chart -> {chart, box, plot}
  let range = null; // of the x axis, in its own unit; null: the whole run
  let cursor = "";
  let heard = Date.now(); // when the server last answered
  let newsAt = null; // when the run's last event came, by this machine's clock
  let looked = null; // index of the point that the keyboard looks at
  let busy = false;
  let wantsLog = null; // what the reader chose; null: whatever suits the loss

  // What the reader chooses is in the address, so a copy of the address shows the same.
  function recall() {
    const chosen = new URLSearchParams(location.search);
    for (const input of controls.elements.axis) input.checked = input.value === chosen.get("axis") || (input.checked && !chosen.get("axis"));
    if (![...controls.elements.axis].some((input) => input.checked)) controls.elements.axis[0].checked = true;
    if (chosen.get("log")) wantsLog = chosen.get("log") === "1";
    if (Number(chosen.get("smooth")) > 0) controls.elements.smooth.value = chosen.get("smooth");
    const [from, to] = [chosen.get("from"), chosen.get("to")].map((text) => (text === null || text === "" ? NaN : Number(text)));
    if (from < to) range = [from, to];
    document.getElementById("more").open = chosen.get("more") === "1";
  }

  function remember() {
    const address = new URL(location.href);
    const smooth = Number(controls.elements.smooth.value);
    const [from, to] = range ? range.map((x) => String(Number(x.toPrecision(6)))) : ["", ""];
    const choices = {
      axis: axis() === "clock" ? "" : axis(), log: wantsLog === null ? "" : wantsLog ? "1" : "0", smooth: smooth ? String(smooth) : "",
      from, to, more: document.getElementById("more").open ? "1" : "",
    };
    for (const [name, value] of Object.entries(choices)) {
      if (value === "") address.searchParams.delete(name);
      else address.searchParams.set(name, value);
    }
    if (address.href !== location.href) history.replaceState(null, "", address);
  }

  const theme = () => (document.documentElement.dataset.theme === "dark" ? "dark" : "light");
  const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const plain = (text) => text.replaceAll("&", "&amp;").replaceAll("<", "&lt;"); // the library reads some tags in its texts
  const axis = () => controls.elements.axis.value;
  const key = (line) => `${line.chart}\u0000${line.name}`;

  const span = (seconds) => {
    const s = Math.round(seconds);
    return s < 60 ? `${s} s` : s < 3600 ? `${Math.floor(s / 60)} min ${s % 60} s` : `${Math.floor(s / 3600)} h ${Math.floor((s % 3600) / 60)} min`;
  };

  function timeUnit() {
    const seconds = run && run.origin && run.news ? run.news - run.origin : 0;
    return seconds > 3 * 3600 ? [3600, "hours"] : seconds > 300 ? [60, "minutes"] : [1, "seconds"];
  }

  function along(points) {
    if (axis() === "time") {
      const [unit] = timeUnit();
      return points.time.map((t) => t / unit);
    }
    if (axis() === "epoch" && run.minibatches_per_epoch) return points.clock.map((c) => c / run.minibatches_per_epoch);
    return points.clock;
  }

  const axisTitle = () => (axis() === "time" ? `${timeUnit()[1]} since the start`
    : axis() === "epoch" && run.minibatches_per_epoch ? "epochs" : "iterations (all workers)");

  function smoothed(values) {
    const keep = Number(controls.elements.smooth.value);
    if (!keep) return values;
    let mean = null;
    return values.map((value) => {
      if (value === null) { mean = null; return null; }
      mean = mean === null ? value : keep * mean + (1 - keep) * value;
      return mean;
    });
  }

  // Several workers test, and one that began later may have ended earlier.
  function byClock(line) {
    if (line.kind !== "test" || axis() === "time") return line;
    const order = line.clock.map((_, at) => at).sort((one, other) => line.clock[one] - line.clock[other]);
    const part = (name) => order.map((at) => line[name][at]);
    return { ...line, clock: part("clock"), time: part("time"), value: part("value") };
  }

  function trace(drawnLine, place, chart) {
    const line = byClock(drawnLine);
    const index = line.run ?? place; // where runs are compared, each has its colour in every chart
    const colours = COLOURS[theme()];
    const isWhole = line.kind === "whole" && line.name.endsWith("of all");
    const colour = isWhole ? css("--ink") : chart.is_stacked ? css(`--part-${index % 3}`) : colours[index % colours.length];
    const canSmooth = line.kind === "worker" || line.kind === "host" || isWhole;
    const drawn = {
      x: along(line), y: canSmooth ? smoothed(line.value) : line.value, name: plain(line.name), type: "scatter", connectgaps: false,
      mode: line.kind === "test" || line.value.length < 3 ? "lines+markers" : "lines",
      line: { color: colour, width: isWhole ? 2.6 : line.kind === "worker" ? 1.3 : 2, dash: isWhole ? "solid" : DASHES[Math.floor(index / colours.length) % DASHES.length] },
      marker: { color: colour, size: 6, symbol: SYMBOLS[index % SYMBOLS.length] },
      hovertemplate: chart.unit === "share" ? "%{y:.1%}" : "%{y:.4~g}",
    };
    if (chart.is_stacked) Object.assign(drawn, { stackgroup: "all", line: { color: colour, width: 0.5 }, mode: "lines" });
    return drawn;
  }

  // What the run is measured against: a level across the whole chart.
  function productionTrace(chart) {
    if (chart.name !== "test_accuracy" || typeof run.production?.accuracy !== "number") return [];
    const { accuracy, version } = run.production;
    return [{
      x: whole(), y: [accuracy, accuracy], type: "scatter", mode: "lines", name: plain(`production ${version}`), hoverinfo: "skip",
      line: { color: css("--ink"), width: 1.5, dash: "longdash" },
    }];
  }

  function marks() {
    const first = run.marks.filter((mark) => mark.kind !== "joined" || mark.clock > 0);
    const rare = first.filter((mark) => mark.kind !== "snapshot");
    const snapshots = first.filter((mark) => mark.kind === "snapshot");
    return [...rare.slice(-MARKS_DRAWN), ...snapshots.slice(-MARKS_DRAWN + Math.min(MARKS_DRAWN - 1, rare.length))];
  }

  function markTrace() {
    const drawn = marks();
    const at = along({ clock: drawn.map((m) => m.clock), time: drawn.map((m) => m.time) });
    return {
      x: at, y: drawn.map(() => 0.97), yaxis: "y2", type: "scatter", mode: "markers", name: "events", showlegend: false,
      text: drawn.map((m) => plain(m.text.slice(0, 160))), hovertemplate: "%{text}<extra></extra>",
      marker: { symbol: drawn.map((m) => MARKS[m.kind]), size: 9, color: drawn.map((m) => (m.kind === "lost" || m.kind === "server" ? css("--bad") : css("--soft"))), line: { color: css("--card"), width: 1 } },
    };
  }

  function layout(chart) {
    const rule = css("--rule");
    const soft = css("--soft");
    const drawn = marks();
    const at = along({ clock: drawn.map((m) => m.clock), time: drawn.map((m) => m.time) });
    return {
      paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", autosize: true,
      font: { color: soft, size: 11, family: getComputedStyle(body).fontFamily },
      margin: { l: 52, r: 10, t: 8, b: 36 }, hovermode: "x unified", dragmode: matchMedia("(pointer: coarse)").matches ? false : "zoom",
      hoverlabel: { bgcolor: css("--card"), bordercolor: rule, font: { color: css("--ink"), size: 11 } },
      showlegend: chart.count + productionTrace(chart).length > 1 && chart.count <= 12 && !body.dataset.hasKeys, legend: { orientation: "h", y: 1.02, yanchor: "bottom", x: 0, font: { size: 10.5 } },
      xaxis: { separatethousands: true, title: { text: axisTitle(), standoff: 4, font: { size: 10.5 } }, gridcolor: rule, zeroline: false, range: range || whole(), automargin: false, fixedrange: false },
      yaxis: yAxis(chart),
      yaxis2: { overlaying: "y", range: [0, 1], visible: false, fixedrange: true },
      shapes: at.map((x, i) => ({ type: "line", x0: x, x1: x, yref: "paper", y0: 0, y1: 1, line: { color: drawn[i].kind === "lost" || drawn[i].kind === "server" ? css("--bad") : rule, width: 1, dash: "dot" } })),
    };
  }

  function whole() {
    let most = 0;
    let least = Infinity;
    for (const line of lines.values()) {
      const x = along(line);
      if (x.length) { most = Math.max(most, x[x.length - 1]); least = Math.min(least, x[0]); }
    }
    if (least === Infinity) return [0, 1];
    return [Math.min(0, least) === 0 && axis() !== "time" ? 0 : Math.min(0, least), most > 0 ? most * 1.01 : 1];
  }

  // The y range of what is to be seen between two x; null: all of it, which the library finds by itself.
  function fitting(chart, isLog) {
    if (!range || chart.is_stacked) return null;
    let least = Infinity;
    let most = -Infinity;
    for (const line of linesOf(chart.name)) {
      const x = along(line);
      line.value.forEach((value, i) => {
        if (value === null || x[i] < range[0] || x[i] > range[1] || (isLog && value <= 0)) return;
        least = Math.min(least, value);
        most = Math.max(most, value);
      });
    }
    if (least === Infinity) return null;
    if (isLog) [least, most] = [Math.log10(least), Math.log10(most)];
    const room = 0.08 * (most - least || Math.abs(most) || 1);
    return [least - room, most + room];
  }

  function yAxis(chart) {
    const isLoss = chart.name === "loss" || chart.name === "test_loss";
    const isLog = isLoss && controls.elements.log.checked;
    const isPoint = linesOf(chart.name).every((line) => line.value.length < 2); // around it Plotly's axis begins below 0 %
    const isFullShare = chart.unit === "share" && (chart.name !== "test_accuracy" || isPoint); // a host that is 99.9 % or 100 % busy looks the same
    const fit = fitting(chart, isLog);
    return {
      gridcolor: css("--rule"), zeroline: false, fixedrange: true, type: isLog ? "log" : "linear",
      tickformat: chart.unit === "share" ? ".2~%" : ",~g", rangemode: chart.unit === "share" || isLoss ? "normal" : "tozero",
      ...(isLog ? { nticks: 4 } : {}), // with more, Plotly writes 0.9 to 0.1 on top of each other
      ...(isFullShare ? { range: [0, 1] } : fit ? { range: fit, autorange: false } : { autorange: true }),
    };
  }

  const linesOf = (name) => [...lines.values()].filter((line) => line.chart === name);

  function boxOf(chart) {
    let made = charts.get(chart.name);
    if (!made) {
      const box = document.createElement("div");
      box.className = "chart";
      box.dataset.place = String(run.charts.findIndex((one) => one.name === chart.name));
      const title = document.createElement("h2");
      title.textContent = chart.title;
      const plot = document.createElement("div");
      plot.className = "plot";
      plot.tabIndex = 0;
      plot.setAttribute("role", "img");
      const table = document.createElement("details");
      table.append(Object.assign(document.createElement("summary"), { textContent: "as a table" }));
      table.addEventListener("toggle", () => tabulate(made));
      box.append(title, plot, table);
      // In their order, whichever has values first.
      const all = document.getElementById(chart.is_first ? "charts" : "more_charts");
      all.insertBefore(box, [...all.children].find((other) => Number(other.dataset.place) > Number(box.dataset.place)) ?? null);
      made = { chart, box, plot, table, isDrawn: false };
      charts.set(chart.name, made);
      plot.addEventListener("keydown", onKey);
    }
    return made;
  }

  let isLinking = false;
  function link(plot) {
    plot.on("plotly_relayout", (change) => {
      if (isLinking) return;
      if ("xaxis.range[0]" in change) range = [change["xaxis.range[0]"], change["xaxis.range[1]"]];
      else if (change["xaxis.autorange"]) range = null;
      else return;
      zoomAll();
    });
    plot.on("plotly_hover", (found) => lookAt(found.xvals ? found.xvals[0] : found.points[0].x, plot));
    plot.on("plotly_unhover", () => lookAt(null, plot));
  }

  const shown = () => [...charts.values()].filter((made) => made.isDrawn && made.plot.offsetParent !== null);

  async function zoomAll() {
    remember();
    isLinking = true;
    const to = range || whole();
    await Promise.all(shown().map((made) => Plotly.relayout(made.plot, { "xaxis.range": to.slice(), yaxis: yAxis(made.chart) })));
    isLinking = false;
  }

  let lookFrame = 0;
  function lookAt(x, from) {
    if (isLinking) return;
    cancelAnimationFrame(lookFrame);
    lookFrame = requestAnimationFrame(() => {
      isLinking = true;
      for (const { plot } of shown()) {
        if (plot === from) continue;
        if (x === null) Plotly.Fx.unhover(plot);
        else Plotly.Fx.hover(plot, { xval: x }, ["xy"]);
      }
      isLinking = false;
    });
  }

  function onKey(event) {
    const plot = event.currentTarget;
    const to = range || whole();
    const middle = (to[0] + to[1]) / 2;
    const half = (to[1] - to[0]) / 2;
    if (event.key === "ArrowRight" || event.key === "ArrowLeft") {
      const places = 40;
      looked = Math.max(0, Math.min(places, (looked ?? (event.key === "ArrowRight" ? -1 : places + 1)) + (event.key === "ArrowRight" ? 1 : -1)));
      const x = to[0] + ((to[1] - to[0]) * looked) / places;
      Plotly.Fx.hover(plot, { xval: x }, ["xy"]);
      lookAt(x, plot);
    } else if (event.key === "+" || event.key === "=") { range = [middle - half / 2, middle + half / 2]; zoomAll(); }
    else if (event.key === "-") { const all = whole(); range = [Math.max(all[0], middle - 2 * half), Math.min(all[1], middle + 2 * half)]; zoomAll(); }
    else if (event.key === "Home" || event.key === "Escape") { range = null; looked = null; lookAt(null, null); zoomAll(); }
    else return;
    event.preventDefault();
  }

  const valueText = (value, chart) => value === null ? "no number" : chart.unit === "share" ? `${(100 * value).toFixed(1)} %` : String(Number(value.toPrecision(4)));

  function describe(made) {
    const last = linesOf(made.chart.name).slice(0, 6).map((line) => `${line.name} ${valueText(line.value[line.value.length - 1], made.chart)}`);
    made.plot.setAttribute("aria-label", `${made.chart.title}. Last values: ${last.join(", ")}`);
    tabulate(made);
  }

  // The chart's values as a table, at evenly spread places: each line's last value up to the place.
  function tabulate({ chart, table }) {
    if (!table.open) return;
    const drawn = linesOf(chart.name).map(byClock).map((line) => ({ name: line.name, x: along(line), value: line.value }));
    const all = [...new Set(drawn.flatMap((line) => line.x))].sort((one, other) => one - other);
    const places = all.filter((_, at) => Math.floor(((at + 1) * TABLE_ROWS) / all.length) > Math.floor((at * TABLE_ROWS) / all.length));
    const cell = (name, text, scope) => { const made = document.createElement(name); made.textContent = text; made.className = "n"; if (scope) made.scope = scope; return made; };
    const row = (cells) => { const made = document.createElement("tr"); made.append(...cells); return made; };
    const head = row([axisTitle(), ...drawn.map((line) => line.name)].map((text) => cell("th", text, "col")));
    const rows = places.map((place) => row([cell("th", Number(place.toPrecision(6)).toLocaleString("en"), "row"), ...drawn.map((line) => {
      const at = line.x.findLastIndex((x) => x <= place);
      return cell("td", at < 0 ? "\u2013" : valueText(line.value[at], chart));
    })]));
    const made = document.createElement("table");
    made.append(head, ...rows);
    const wide = document.createElement("div");
    wide.className = "wide";
    wide.tabIndex = 0;
    wide.append(made);
    table.querySelector("div")?.remove();
    table.append(wide);
  }

  function suitsLog() {
    const values = linesOf("loss").flatMap((line) => line.value).filter((value) => value !== null);
    const least = values.reduce((a, b) => Math.min(a, b), Infinity);
    return least > 0 && values.reduce((a, b) => Math.max(a, b), 0) > 20 * least;
  }

  function draw() {
    if (!run || typeof Plotly === "undefined") return;
    const hasLines = lines.size > 0;
    controls.hidden = !hasLines;
    document.getElementById("more").hidden = !hasLines;
    controls.elements.log.checked = wantsLog ?? suitsLog();
    const isMoreOpen = document.getElementById("more").open;
    for (const chart of run.charts) {
      const found = linesOf(chart.name);
      if (!found.length || (!chart.is_first && !isMoreOpen)) continue;
      const made = boxOf(chart);
      made.chart.count = found.length;
      const order = found.map((line, index) => [line, index]).sort((a, b) => (a[0].kind === "whole") - (b[0].kind === "whole"));
      const traces = [...order.map(([line, index]) => trace(line, index, made.chart)), ...productionTrace(made.chart), markTrace()];
      Plotly.react(made.plot, traces, layout(made.chart), { displayModeBar: false, responsive: true, doubleClick: "autosize" });
      if (!made.isDrawn) { made.isDrawn = true; link(made.plot); }
      describe(made);
    }
    const kept = [...lines.values()].reduce((sum, line) => sum + line.clock.length, 0);
    const isThin = run.points_of_run > kept;
    document.getElementById("sampling").textContent = isThin
      ? `Drawn from ${kept.toLocaleString("en")} of ${run.points_of_run.toLocaleString("en")} values: of each stretch the least and the greatest, of shares of time the mean.` : "";
  }

  function take(answer) {
    const before = run;
    if (answer.is_whole) lines = new Map(answer.lines.map((line) => [key(line), line]));
    else {
      for (const line of answer.lines) {
        const known = lines.get(key(line));
        if (!known) lines.set(key(line), line);
        else for (const part of ["clock", "time", "value"]) known[part].push(...line[part]);
      }
    }
    answer.points_of_run = answer.is_whole ? answer.points_of : (before ? before.points_of_run : 0) + answer.points;
    run = answer;
    dispatchEvent(new CustomEvent("run_news", { detail: answer }));
    cursor = answer.cursor;
    heard = Date.now();
    newsAt = answer.news === null ? null : heard - 1000 * (answer.now - answer.news);
    if (answer.parts) {
      for (const [name, html] of Object.entries(answer.parts)) {
        const part = document.getElementById(name);
        if (part.dataset.text !== html) { part.innerHTML = html; part.dataset.text = html; }
      }
      const [name, state] = document.querySelectorAll("#head h1, #head h1 .state");
      document.title = `${name.firstChild.textContent.trim()}: ${state.textContent}`;
    }
    if (answer.is_whole || answer.lines.length || !before || before.marks.length !== answer.marks.length) draw();
    if ([...lines.values()].some((line) => line.clock.length > LONGEST_LINE)) cursor = "";
    if (body.dataset.isReport && answer.has_report) location.reload();
  }

  function tell() {
    const silent = (Date.now() - heard) / 1000;
    let text = "";
    if (silent > 10) text = `Airflow has not answered for ${span(silent)}; the numbers are as old. Trying again.`;
    else if (run && !run.state.is_over && newsAt !== null && ["running", "starting"].includes(run.state.name)) {
      const quiet = (Date.now() - newsAt) / 1000;
      if (quiet > 15) text = `no news for ${span(quiet)}`;
    }
    for (const other of document.querySelectorAll(".quiet")) other.remove(); // the server's own words, of when it spoke
    if (news.textContent !== text) news.textContent = text;
    news.hidden = text === "";
  }

  async function ask() {
    if (busy || (document.hidden && run)) return;
    busy = true;
    try {
      const query = new URLSearchParams({ format: "json", parts: "true", since: cursor });
      const answer = await fetch(`${url}${url.includes("?") ? "&" : "?"}${query}`, { headers: { accept: "application/json" }, cache: "no-store" });
      if (answer.status === 401 || answer.status === 403) {
        news.textContent = "Your login has ended: load this page again.";
        news.hidden = false;
        return stop();
      }
      if (!answer.ok) throw new Error(String(answer.status));
      take(await answer.json());
      if (run.state.is_over) stop();
    } catch { /* said by tell(), after a while */ } finally { busy = false; }
  }

  let timers = [];
  function stop() {
    for (const timer of timers) clearInterval(timer);
    timers = [];
  }

  controls.addEventListener("input", (event) => {
    if (event.target.name === "axis") range = null;
    if (event.target.name === "log") wantsLog = event.target.checked;
    remember();
    draw();
  });
  controls.addEventListener("submit", (event) => event.preventDefault());
  controls.elements.reset.addEventListener("click", () => { range = null; looked = null; zoomAll(); });
  document.getElementById("more").addEventListener("toggle", () => { remember(); draw(); });
  document.addEventListener("visibilitychange", () => { if (!document.hidden && timers.length) ask(); });
  addEventListener("themed", draw);
  let resized;
  addEventListener("resize", () => { clearTimeout(resized); resized = setTimeout(draw, 300); }); // Plotly keeps the room of the keys' earlier rows

  recall();
  timers = [setInterval(ask, pollMs), setInterval(tell, 1000)];
  ask();
})();
