// Shows how the measurement of an open dispute goes on. Without it the page loads itself again.
"use strict";

(() => {
  const section = document.getElementById("progress");
  if (section === null || typeof EventSource === "undefined") return;

  const RELOAD_MILLISECONDS = 15000;
  const bar = document.getElementById("bar");
  const share = document.getElementById("share");

  // Characters that do not print are shown by their numbers, as everywhere on these pages.
  const visible = (text) =>
    text.replace(/[\p{C}\u2028\u2029]/gu, (odd) =>
      `[U+${odd.codePointAt(0).toString(16).toUpperCase().padStart(4, "0")}]`);

  // A text that has not changed is left alone, so that it is not read out again.
  const write = (id, text) => {
    const element = document.getElementById(id);
    if (element !== null && element.textContent !== text) element.textContent = text;
  };

  const show = (detail) => {
    const job = detail.job;
    if (job === null) return;
    const percent = Math.floor(100 * job.progress);
    if (bar !== null) bar.value = percent;
    if (share !== null) share.textContent = `${percent} %`;
    write("standing", section.dataset[job.state] ?? "");
    write("message", visible(job.message));
    // Events count the answers, and do not repeat them.
    if (detail.num_defences !== Number(section.dataset.defences)) {
      write("news", "An answer was given since; load the page again to read it.");
    }
  };

  const events = new EventSource(section.dataset.events);
  events.addEventListener("progress", (event) => show(JSON.parse(event.data)));
  events.addEventListener("done", (event) => {
    events.close();
    show(JSON.parse(event.data));
    location.reload();
  });
  events.addEventListener("error", () => {
    // A stream that ended is asked for again by the browser itself; one that was refused is not.
    if (events.readyState === EventSource.CLOSED) {
      setTimeout(() => location.reload(), RELOAD_MILLISECONDS);
    }
  });
})();
