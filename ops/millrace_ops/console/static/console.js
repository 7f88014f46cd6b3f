// The live tail of the message browser; all else on the pages works without JavaScript.
"use strict";

(() => {
  const bar = document.querySelector("[data-tail]");
  if (!bar) return;
  const EVERY_MS = 1000, MOST_ROWS = 500;
  const button = document.getElementById("follow");
  const status = document.getElementById("tail-status");
  const body = document.getElementById("records");
  const title = document.title;
  let timer = null, from = body.dataset.from, count = 0;
  bar.hidden = false;

  const ask = async () => {
    try {
      const answer = await fetch(`${bar.dataset.tail}&from=${encodeURIComponent(from)}`, { redirect: "error" });
      if (!answer.ok) throw new Error(`the console answers ${answer.status}`);
      const page = new DOMParser().parseFromString(await answer.text(), "text/html");
      const found = page.querySelector("tbody");
      from = found.dataset.from;
      const rows = [...found.rows];
      rows.forEach((row) => { row.className = "new"; body.prepend(row); });
      while (body.rows.length > MOST_ROWS) body.lastElementChild.remove();
      if (rows.length) {
        count += rows.length;
        document.getElementById("no-records")?.remove();
        status.textContent = `${count} new records, the newest first`;
      }
    } catch (error) {
      status.textContent = `Not followed at present: ${error.message}`;
    }
    if (timer !== null) timer = setTimeout(ask, EVERY_MS);
  };

  button.addEventListener("click", () => {
    const follows = timer === null;
    button.setAttribute("aria-pressed", String(follows));
    bar.classList.toggle("live", follows);
    document.title = follows ? `● ${title}` : title;
    if (follows) {
      status.textContent = "Waiting for new records";
      timer = setTimeout(ask, 0);
    } else {
      clearTimeout(timer);
      timer = null;
      status.textContent = "Stopped";
    }
  });
})();
