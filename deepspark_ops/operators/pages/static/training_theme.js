// Before anything is drawn: light or dark as Airflow's own switch says, and a nonce for the styles that plotly.js adds.
"use strict";
(() => {
  const nonce = document.currentScript.nonce;
  const create = document.createElement.bind(document);
  document.createElement = (name, options) => {
    const made = create(name, options);
    if (String(name).toLowerCase() === "style") made.nonce = nonce;
    return made;
  };
  const chosen = () => {
    let theme = null;
    try { theme = localStorage.getItem("theme"); } catch { /* storage is off: as the system has it */ }
    const dark = matchMedia("(prefers-color-scheme: dark)").matches;
    return theme === "dark" || theme === "light" ? theme : dark ? "dark" : "light";
  };
  const apply = () => {
    document.documentElement.dataset.theme = chosen();
    dispatchEvent(new Event("themed"));
  };
  apply();
  addEventListener("storage", apply);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", apply);
})();
