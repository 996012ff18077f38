// The list of runs: fresh rows by themselves while a run is live.
"use strict";
(() => {
  const refreshMs = Number(document.body.dataset.refreshMs);
  const rowsOf = (page) => page.querySelector("table.runs tbody");
  const nameOf = (element) => element.value || element.href;

  function replaceRows(rows) {
    const old = rowsOf(document);
    const ticked = new Set([...old.querySelectorAll("input:checked")].map(nameOf));
    const focused = old.contains(document.activeElement) ? nameOf(document.activeElement) : null;
    for (const box of rows.querySelectorAll("input")) box.checked = ticked.has(box.value);
    old.replaceWith(document.adoptNode(rows));
    dispatchEvent(new Event("rows_replaced"));
    if (focused) [...rows.querySelectorAll("input, a")].find((element) => nameOf(element) === focused)?.focus();
  }

  async function refresh() {
    let isLive = true;
    if (!document.hidden) {
      try {
        const answer = await fetch(location.href, { headers: { accept: "text/html", "x-deepspark-refresh": "1" } });
        const page = new DOMParser().parseFromString(await answer.text(), "text/html");
        if (answer.ok && !answer.redirected && rowsOf(page)) {
          replaceRows(rowsOf(page));
          isLive = "refreshMs" in page.body.dataset;
        }
      } catch { /* the server is away: the next request may reach it */ }
    }
    if (isLive) setTimeout(refresh, refreshMs);
  }
  if (refreshMs && rowsOf(document)) setTimeout(refresh, refreshMs);
})();
