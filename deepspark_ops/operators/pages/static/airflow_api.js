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
