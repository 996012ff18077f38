// The list of runs: columns by choice and order, conditions by clicks, stop and trigger of the ticked runs.
"use strict";
(() => {
  const body = document.body;
  const table = document.querySelector("table.runs");
  const key = `deepspark.runs.columns.${body.dataset.user}`;

  // Columns: name and whether it is shown, in their order, kept in this browser for this user.
  const heads = () => [...document.querySelectorAll("table.runs thead [data-column]")];
  const first = heads().map((head) => ({ name: head.dataset.column, title: head.dataset.title, isShown: !head.hidden }));
  function readColumns() {
    let kept = [];
    try { kept = JSON.parse(localStorage.getItem(key)) ?? []; } catch { /* storage is off, or damaged: the first order */ }
    const known = new Map(first.map((column) => [column.name, column]));
    const chosen = (Array.isArray(kept) ? kept : []).filter((column) => known.has(column?.name));
    const names = new Set(chosen.map((column) => column.name));
    return [
      ...chosen.map((column) => ({ ...known.get(column.name), isShown: column.isShown !== false })),
      ...first.filter((column) => !names.has(column.name)),
    ];
  }
  let columns = readColumns();

  function arrange() {
    if (!table) return;
    for (const row of document.querySelectorAll("table.runs tr:not(.reason)")) {
      const cells = new Map([...row.querySelectorAll("[data-column]")].map((cell) => [cell.dataset.column, cell]));
      for (const column of columns) {
        const cell = cells.get(column.name);
        cell.hidden = !column.isShown;
        row.append(cell);
      }
    }
  }

  function keepColumns() {
    try {
      localStorage.setItem(key, JSON.stringify(columns.map(({ name, isShown }) => ({ name, isShown }))));
    } catch { /* storage is off: the choice lasts as long as the page */ }
    arrange();
  }

  function moved(at, by) {
    const to = at + by;
    if (to < 0 || to >= columns.length) return;
    [columns[at], columns[to]] = [columns[to], columns[at]];
    keepColumns();
    drawMenu(to, by < 0 ? "earlier" : "later");
  }

  const menu = document.querySelector("details.columns");
  function drawMenu(focusAt = -1, focusOn = "") {
    const items = columns.map((column, at) => {
      const item = document.createElement("li");
      const label = document.createElement("label");
      const box = document.createElement("input");
      box.type = "checkbox";
      box.checked = column.isShown;
      box.addEventListener("change", () => { column.isShown = box.checked; keepColumns(); });
      label.append(box, ` ${column.title}`);
      item.append(label);
      for (const [word, text, by] of [["earlier", "\u2190", -1], ["later", "\u2192", 1]]) {
        const button = document.createElement("button");
        button.type = "button";
        button.textContent = text;
        button.setAttribute("aria-label", `${column.title}: ${word}`);
        button.addEventListener("click", () => moved(at, by));
        item.append(button);
        if (at === focusAt && word === focusOn) setTimeout(() => button.focus());
      }
      return item;
    });
    const reset = document.createElement("li");
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = "as at first";
    button.addEventListener("click", () => { columns = first.map((column) => ({ ...column })); keepColumns(); drawMenu(); });
    reset.append(button);
    menu.querySelector("ul").replaceChildren(...items, reset);
  }
  if (menu && table) {
    menu.hidden = false;
    arrange();
    drawMenu();
    addEventListener("rows_replaced", arrange);
  }

  // Conditions by clicks: they are added to the text of the filter, which the address keeps.
  const builder = document.querySelector("form.build");
  const filter = document.querySelector("form.choose input[name=filter]");
  function offerOperators() {
    const { field, operator } = builder.elements;
    const signs = field.selectedOptions[0].dataset.operators.split(" ");
    operator.replaceChildren(...signs.map((sign) => new Option(sign, sign)));
  }
  if (builder && filter) {
    builder.hidden = false;
    offerOperators();
    builder.elements.field.addEventListener("change", offerOperators);
    builder.addEventListener("submit", (event) => {
      event.preventDefault();
      const { field, operator, value } = builder.elements;
      const text = value.value.trim();
      if (!text) return value.focus();
      const quoted = /[\s,"']/.test(text) ? (text.includes('"') ? `'${text.replaceAll("'", "")}'` : `"${text}"`) : text;
      filter.value = [filter.value.trim(), `${field.value}${operator.value}${quoted}`].filter(Boolean).join(" and ");
      filter.form.requestSubmit();
    });
  }

  // The ticked runs.
  const list = document.querySelector("form.list");
  if (!list) return;
  const { stop, again } = list.elements;
  const news = document.getElementById("list_news");
  const ticked = () => [...list.querySelectorAll("tbody input[name=run]:checked")].map((box) => box.closest("tr"));
  function say(text) {
    news.textContent = text;
    news.hidden = text === "";
  }
  if (again) {
    again.hidden = false;
    again.addEventListener("click", () => {
      const rows = ticked();
      if (rows.length !== 1 || !rows[0].dataset.again) return say("Tick one run that Airflow knows, to trigger it again.");
      say("");
      dispatchEvent(new CustomEvent("trigger_again", { detail: rows[0].dataset.again }));
    });
  }
  if (stop) {
    stop.hidden = false;
    stop.addEventListener("click", async () => {
      const rows = ticked().filter((row) => row.dataset.isLive && row.dataset.api);
      if (!rows.length) return say("Tick runs that wait or run, to stop them.");
      if (!confirm(`Stop ${rows.length} run${rows.length === 1 ? "" : "s"}? Airflow ends their tasks; files and snapshots stay.`)) return;
      const refused = [];
      for (const row of rows) {
        try { await stopRun(row.dataset.api); } catch (error) {
          refused.push(`${row.querySelector("th a").textContent}: ${error.message}`);
        }
      }
      if (refused.length) say(`Not stopped: ${refused.join("; ")}`);
      else location.reload();
    });
  }
})();
