// Times in the reader's own zone, also in new parts of the page; the titles are UTC.
"use strict";
(() => {
  const two = (number) => String(number).padStart(2, "0");
  function localise() {
    for (const time of document.querySelectorAll("time[datetime]:not([data-is-local])")) {
      const at = new Date(time.dateTime);
      const clock = `${two(at.getHours())}:${two(at.getMinutes())}`;
      const day = `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())}`;
      time.textContent = "seconds" in time.dataset ? `${clock}:${two(at.getSeconds())}` : `${day} ${clock}`;
      time.dataset.isLocal = "";
    }
  }
  localise();
  const news = new MutationObserver(localise);
  for (const part of document.querySelectorAll("#below, form.list")) news.observe(part, { childList: true, subtree: true });
})();
