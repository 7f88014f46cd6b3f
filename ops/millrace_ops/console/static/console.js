// The live tail of the message browser, and pages that refresh themselves; all else works without JavaScript.
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

// The page's main part is asked for again and put in place of the old one, with the focus, the opened details and the
// scrolled tables as they were; not while somebody fills in a form, selects text, or has the page in the background.
(() => {
  const bar = document.getElementById("reload-bar");
  if (!bar) return;
  const KEPT = "millrace-reload", OFF = "off";
  const button = document.getElementById("reload");
  const status = document.getElementById("reload-status");
  const main = document.getElementById("main");
  const every = (of, selector) => [...of.querySelectorAll(selector)];
  const FOCUSABLE = "a, button, summary, [tabindex]";
  let on = sessionStorage.getItem(KEPT) !== OFF;
  bar.hidden = false;

  const show = () => {
    button.setAttribute("aria-pressed", String(on));
    button.textContent = on ? `Refreshes itself every ${bar.dataset.reloadS} s` : "Refresh it by itself";
    status.textContent = "";
  };
  const isBusy = () =>
    document.hidden || String(getSelection()) !== "" || document.activeElement.closest("form, select") !== null ||
    every(main, "input:not([type=hidden]), textarea").some((one) =>
      one.type === "checkbox" ? one.checked !== one.defaultChecked : one.value !== one.defaultValue);

  const replace = (fresh) => {
    const focused = every(main, FOCUSABLE).indexOf(document.activeElement);
    const open = every(main, "details").map((one) => one.open);
    const scrolled = every(main, ".scroll").map((one) => one.scrollLeft);
    main.replaceChildren(...fresh.childNodes);
    every(main, "details").forEach((one, index) => { one.open = open[index] ?? one.open; });
    every(main, ".scroll").forEach((one, index) => { one.scrollLeft = scrolled[index] ?? 0; });
    every(main, FOCUSABLE)[focused]?.focus({ preventScroll: true });
  };

  const ask = async () => {
    if (!on || isBusy()) return;
    try {
      const answer = await fetch(location.href, { redirect: "error" });
      if (!answer.ok) throw new Error(`the console answers ${answer.status}`);
      const page = new DOMParser().parseFromString(await answer.text(), "text/html");
      if (on && !isBusy()) replace(page.getElementById("main"));
      status.textContent = "";
    } catch (error) {
      status.textContent = `Not refreshed: ${error.message}`;
    }
  };
  button.addEventListener("click", () => {
    on = !on;
    sessionStorage.setItem(KEPT, on ? "on" : OFF);
    show();
  });
  show();
  setInterval(ask, 1000 * bar.dataset.reloadS);
})();
