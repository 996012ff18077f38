// Triggers a run again: the options that differ from the form's defaults are shown as JSON, to be changed and sent to Airflow.
"use strict";
(() => {
  const dialog = document.getElementById("again");
  const form = dialog.querySelector("form");
  const { options, trigger, cancel } = form.elements;
  const problem = form.querySelector("[role=alert]");
  const { airflow, pages } = dialog.dataset;
  const path = (...parts) => parts.map(encodeURIComponent).join("/");
  const text = (values) => JSON.stringify(values, null, 1);
  let dag = "";

  function say(words) {
    problem.textContent = words;
    problem.hidden = words === "";
  }

  async function show(url) {
    const run = await askAirflow(url);
    dag = run.dag_id;
    const { params } = await askAirflow(`${airflow}/api/v2/dags/${path(dag)}/details`);
    const defaults = new Map(Object.entries(params ?? {}).map(([name, param]) => [name, param?.value ?? null]));
    const isChanged = ([name, value]) => !defaults.has(name) || text(defaults.get(name)) !== text(value);
    const changed = Object.fromEntries(Object.entries(run.conf ?? {}).filter(isChanged));
    options.value = text(changed);
    form.querySelector("b").textContent = dag;
    form.querySelector("pre").textContent = text(Object.fromEntries([...defaults].filter(([name]) => !Object.hasOwn(changed, name))));
    form.querySelector("a").href = `${airflow}/dags/${path(dag)}/runs/${path(run.dag_run_id)}`;
    say("");
    dialog.showModal();
    options.focus();
    options.setSelectionRange(0, 0);
  }

  async function start() {
    const conf = JSON.parse(options.value || "{}");
    const run = await askAirflow(`${airflow}/api/v2/dags/${path(dag)}/dagRuns`, "POST", { logical_date: null, conf });
    dialog.close();
    const isTab = window.top !== window && location.pathname.endsWith("/training");  // the tab is of the earlier run
    if (isTab) window.top.location.assign(`${airflow}/dags/${path(dag)}/runs/${path(run.dag_run_id)}`);
    else location.assign(`${pages}/runs/${path(dag, run.dag_run_id)}/training`);
  }

  form.addEventListener("submit", (event) => {
    event.preventDefault();
    trigger.disabled = true;
    start().catch((error) => say(`Not triggered: ${error.message}`)).finally(() => { trigger.disabled = false; });
  });
  cancel.addEventListener("click", () => dialog.close());
  // A button names the run by its address in Airflow's API.
  addEventListener("trigger_again", (event) => { show(event.detail).catch((error) => alert(`The run's options: ${error.message}`)); });
  document.querySelector("button[data-again]")?.addEventListener("click", (event) => {
    dispatchEvent(new CustomEvent("trigger_again", { detail: event.target.dataset.again }));
  });
})();
