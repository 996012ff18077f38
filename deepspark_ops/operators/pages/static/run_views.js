// Saved views of the list of runs: address and columns under a name, kept in this browser for this user.
"use strict";
(() => {
  const form = document.querySelector("form.views");
  if (!form) return;
  const user = document.body.dataset.user;
  const [key, columnsKey] = [`deepspark.runs.views.${user}`, `deepspark.runs.columns.${user}`];
  const MOST = 30;
  const { view, title } = form.elements;

  function read() {
    try {
      const saved = JSON.parse(localStorage.getItem(key)) ?? [];
      return (Array.isArray(saved) ? saved : []).filter((one) => typeof one?.title === "string" && typeof one.search === "string");
    } catch { return []; /* storage is off, or damaged */ }
  }

  function write(views) {
    try { localStorage.setItem(key, JSON.stringify(views)); } catch { /* storage is off: nothing is kept */ }
    draw();
  }

  // Without the page's number: a view is a question, and the number belongs to its answer of today.
  function search() {
    const parameters = new URLSearchParams(location.search);
    parameters.delete("page");
    return String(parameters);
  }

  function draw() {
    const views = read();
    const here = views.find((one) => one.search === search());
    view.replaceChildren(new Option(views.length ? "choose a view" : "no view is saved", ""), ...views.map((one) => new Option(one.title, one.title, false, one === here)));
    form.elements.remove_view.hidden = !here;
    form.hidden = false;
  }

  form.addEventListener("submit", (event) => {
    event.preventDefault();
    const name = title.value.trim().slice(0, 60);
    if (!name) return;
    const saved = { title: name, search: search(), columns: localStorage.getItem(columnsKey) };
    write([...read().filter((one) => one.title !== name), saved].slice(-MOST));
    title.value = "";
  });
  view.addEventListener("change", () => {
    const chosen = read().find((one) => one.title === view.value);
    if (!chosen) return;
    if (typeof chosen.columns === "string") localStorage.setItem(columnsKey, chosen.columns);
    location.search = chosen.search;
  });
  form.elements.remove_view.addEventListener("click", () => write(read().filter((one) => one.title !== view.value)));
  draw();
})();
