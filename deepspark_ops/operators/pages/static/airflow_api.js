// Calls of Airflow's public API: Airflow checks the right of the person and writes its audit log.
"use strict";
globalThis.askAirflow = async (url, method = "GET", body = undefined) => {
  const answer = await fetch(url, {
    method,
    headers: { accept: "application/json", "content-type": "application/json" },
    body: body && JSON.stringify(body),
  });
  if (answer.ok) return answer.json();
  const detail = (await answer.json().catch(() => ({}))).detail;
  throw new Error(typeof detail === "string" ? detail : `Airflow answered ${answer.status}`);
};

// Airflow's scheduler judges a run by its last tasks: a run whose last tasks are skipped is a success, also if the run was
// marked as failed at that moment. So a last task that has not ended is marked as failed before the run.
globalThis.stopRun = async (url) => {
  const { tasks } = await askAirflow(url.replace(/dagRuns\/[^/]*$/, "tasks"));
  const lastTasks = tasks.filter((task) => task.downstream_task_ids.length === 0).map((task) => task.task_id);
  const { task_instances: instances } = await askAirflow(`${url}/taskInstances`);
  const ended = ["success", "failed", "upstream_failed", "skipped", "removed"];
  const open = instances.find((task) => lastTasks.includes(task.task_id) && !ended.includes(task.state));
  if (open) await askAirflow(`${url}/taskInstances/${encodeURIComponent(open.task_id)}`, "PATCH", { new_state: "failed" });
  return askAirflow(url, "PATCH", { state: "failed" });
};
