// Adds new rows to the audit log while the page is visible. Without this script there is no button.
import { groupByDay } from "./rows.js";
import { showLocalTimes } from "./times.js";

const ROWS_MAX = 500; // limits the size of a page that stays open
const LEFT_AFTER_MS = 3000; // a followed link may be a download, which does not leave the page
const SAY_AFTER_MS = 1000; // screen readers announce several rows together
const RESUME = "countersign-live"; // which page was live before it was loaded again

function watch(button, status) {
  const address = new URL(button.dataset.live, location.href);
  const rows = document.querySelector("table.log tbody");
  let source = null;
  let isOn = false;
  let isLeaving = false;
  let added = 0;
  let saying = 0;

  function say(text, link) {
    clearTimeout(saying);
    saying = 0;
    status.textContent = text;
    if (link) {
      const again = document.createElement("a");
      again.href = location.href;
      again.textContent = link;
      status.append(" ", again);
    }
  }

  function saySoon() {
    saying ||= setTimeout(() => say(added === 1 ? "1 new row" : `${added} new rows`), SAY_AFTER_MS);
  }

  function open() {
    source = new EventSource(address);
    source.addEventListener("row", (event) => add(event));
    source.addEventListener("more", (event) => {
      address.searchParams.set("after", event.lastEventId);
      say("Too many new rows to show live.", "Reload the page");
    });
    source.addEventListener("ended", (event) => stop(event.data));
    source.onerror = () => {
      // Otherwise the browser reconnects by itself, from the last row on.
      if (source?.readyState === EventSource.CLOSED && !isLeaving) {
        stop("New rows cannot be shown: you are signed out, or too many pages are live at once.");
      }
    };
  }

  function close() {
    source?.close();
    source = null;
  }

  function start() {
    isOn = true;
    button.setAttribute("aria-pressed", "true");
    sessionStorage.setItem(RESUME, location.href);
    say("Waiting for new rows");
    if (!document.hidden) open();
  }

  function stop(text) {
    isOn = false;
    button.setAttribute("aria-pressed", "false");
    sessionStorage.removeItem(RESUME);
    close();
    say(text, text && "Reload the page");
  }

  function add(event) {
    address.searchParams.set("after", event.lastEventId);
    if (!rows) {
      location.reload(); // there is no table yet; the reloaded page is live
      return;
    }
    const template = document.createElement("template");
    template.innerHTML = event.data;
    const row = template.content.querySelector("tr");
    if (document.getElementById(row.id)) return;
    showLocalTimes(row);
    row.classList.add("fresh");
    rows.prepend(row);
    while (rows.childElementCount > ROWS_MAX) rows.lastElementChild.remove();
    groupByDay();
    added += 1;
    saySoon();
  }

  button.addEventListener("click", () => (isOn ? stop("") : start()));
  document.addEventListener("visibilitychange", () => {
    if (!isOn) return;
    if (document.hidden) close();
    else open();
  });
  // Leaving the page closes the stream, which is not an error.
  window.addEventListener("beforeunload", () => {
    isLeaving = true;
    setTimeout(() => {
      isLeaving = false;
      if (isOn && source?.readyState === EventSource.CLOSED) open();
    }, LEFT_AFTER_MS);
  });
  button.hidden = false;
  if (sessionStorage.getItem(RESUME) === location.href) start();
}

const button = document.querySelector("[data-live]");
if (button) watch(button, document.querySelector("[data-live-status]"));
