// Keys to move through the rows of the audit log, their details below them, and their days in the shown zone. Without
// this script the arrow of a row leads to its page, and days are those of UTC.
import { shownZone, showLocalTimes } from "./times.js";

const help = document.querySelector("[data-help]");
const search = document.getElementById("search");
const table = document.querySelector("table.log");

const rows = () => [...document.querySelectorAll("table.log tr[id]")];

// Puts the day in front of the first of its rows.
export function groupByDay() {
  const group = document.querySelector("table.log tr.group");
  for (const old of document.querySelectorAll("table.log tr.group")) old.remove();
  const day = { timeZone: shownZone(), weekday: "long", day: "numeric", month: "long", year: "numeric" };
  const format = new Intl.DateTimeFormat("en-GB", day);
  let above = "";
  for (const row of group ? rows() : []) {
    const text = format.format(new Date(row.querySelector("time").dateTime)).replace(",", "");
    if (text !== above) {
      const head = group.cloneNode(true);
      head.querySelector("th").textContent = above = text;
      row.before(head);
    }
  }
}

function move(step) {
  const all = rows();
  const at = all.findIndex((row) => row.contains(document.activeElement));
  const next = all[Math.min(Math.max(at + step, 0), all.length - 1)];
  next?.querySelector("a.open")?.focus();
  next?.scrollIntoView({ block: "nearest" });
}

async function toggle(row) {
  const link = row?.querySelector("a.open");
  if (!link) return;
  const below = () => (row.nextElementSibling?.matches(".inner") ? row.nextElementSibling : null);
  const open = below();
  link.setAttribute("aria-expanded", String(!open));
  if (open) {
    open.remove();
    return;
  }
  try {
    const response = await fetch(link.dataset.details);
    if (!response.ok) throw new TypeError(response.statusText);
    const template = document.createElement("template");
    template.innerHTML = await response.text();
    if (below() || link.getAttribute("aria-expanded") !== "true") return;
    showLocalTimes(template.content);
    const inner = document.createElement("tr");
    inner.className = "inner";
    const cell = inner.insertCell();
    cell.colSpan = row.cells.length;
    cell.append(template.content.querySelector(".inside"));
    row.after(inner);
  } catch (error) {
    if (!(error instanceof TypeError)) throw error;
    location.assign(link.href); // signed out, or no network: the page of the row says so
  }
}

function openExports() {
  const menu = document.querySelector("details[data-exports]");
  if (!menu) return;
  menu.open = true;
  menu.querySelector("a")?.focus();
}

const keys = {
  "/": () => search?.focus(),
  j: () => move(1),
  k: () => move(-1),
  o: () => toggle(document.activeElement?.closest("table.log tr[id]")),
  e: openExports,
  "?": () => help?.showModal(),
};

function isTyping(target) {
  return target.closest("input:not([type=checkbox]), textarea, select, dialog") !== null;
}

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.isComposing) return;
  if (event.key === "Escape") {
    const menu = document.querySelector("details.menu[open]");
    if (menu) {
      menu.open = false;
      menu.querySelector("summary").focus();
    }
  }
  if (isTyping(event.target)) return;
  const act = keys[event.key];
  if (!act) return;
  event.preventDefault();
  act();
});

// A click on a row opens it, unless it follows a link or selects text.
table?.addEventListener("click", (event) => {
  if (event.ctrlKey || event.metaKey || event.shiftKey || event.button) return; // a new tab
  const row = event.target.closest("tr[id]");
  const link = event.target.closest("a");
  if (!row) return;
  if (link ? !link.matches(".open") : !getSelection().isCollapsed) return;
  event.preventDefault();
  toggle(row);
});

for (const link of document.querySelectorAll("table.log a.open")) {
  link.setAttribute("aria-expanded", "false");
}

document.addEventListener("zonechange", groupByDay);
if (shownZone() !== "UTC") groupByDay();

const hint = document.querySelector("[data-keys]");
if (hint) hint.hidden = false;
