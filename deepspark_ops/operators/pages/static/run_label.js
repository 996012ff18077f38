// Note and stop of a run, by Airflow's public API.
"use strict";
(() => {
  const section = document.querySelector("section.about");
  if (!section?.dataset.api) return;
  const { note: noteForm, stop: stopForm } = document.forms;
  const noteText = document.getElementById("note");
  const news = document.getElementById("label_news");

  function say(text) {
    news.textContent = text;
    news.hidden = text === "";
  }

  noteForm?.addEventListener("submit", async (event) => {
    event.preventDefault();
    try {
      const run = await askAirflow(section.dataset.api, "PATCH", { note: noteForm.elements.text.value });
      noteText.textContent = run.note ?? "";
      noteText.hidden = !run.note;
      document.querySelector("#edit_note summary").textContent = run.note ? "edit the note" : "add a note";
      document.getElementById("edit_note").open = false;
      say("");
    } catch (error) { say(`The note was not saved: ${error.message}`); }
  });

  stopForm?.addEventListener("submit", async (event) => {
    event.preventDefault();
    if (!confirm("Stop this run? Airflow ends its tasks and marks it as failed. Files and snapshots stay.")) return;
    try {
      await stopRun(section.dataset.api);
      stopForm.hidden = true;
      say("Airflow ends the tasks of this run.");
    } catch (error) { say(`The run was not stopped: ${error.message}`); }
  });

  // The page asks for news of the run by itself (training.js); a run that is over cannot be stopped.
  addEventListener("run_news", (event) => {
    const run = event.detail;
    if (stopForm) stopForm.hidden = run.state.is_over;
    const note = run.airflow?.note ?? "";
    if (!document.getElementById("edit_note")?.open && noteText.textContent !== note) {
      noteText.textContent = note;
      noteText.hidden = !note;
      if (noteForm) noteForm.elements.text.value = note;
    }
  });
})();
