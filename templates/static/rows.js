// Keys to move through the rows of the audit log, and numbers beside the links in their details. Without this script
// the details open by their summary, and their links have no numbers.
const help = document.querySelector("[data-help]");
const search = document.getElementById("search");
const table = document.querySelector("table.log");

const rows = () => [...document.querySelectorAll("table.log tbody tr")];

function move(step) {
  const all = rows();
  const at = all.findIndex((row) => row.contains(document.activeElement));
  const next = all[Math.min(Math.max(at + step, 0), all.length - 1)];
  next?.querySelector("summary")?.focus();
  next?.scrollIntoView({ block: "nearest" });
}

function toggle() {
  const row = document.activeElement?.closest("table.log tbody tr");
  const details = row?.querySelector("details");
  if (details) details.open = !details.open;
}

function openExports() {
  const menu = document.querySelector("details.menu");
  if (!menu) return;
  menu.open = true;
  menu.querySelector("a")?.focus();
}

const keys = {
  "/": () => search?.focus(),
  j: () => move(1),
  k: () => move(-1),
  o: toggle,
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

async function countPivots(list) {
  if (list.dataset.counted) return;
  list.dataset.counted = "yes";
  try {
    const response = await fetch(list.dataset.pivots);
    if (!response.ok) return; // the links work without numbers
    const template = document.createElement("template");
    template.innerHTML = await response.text();
    const own = list.lastElementChild;
    list.replaceChildren(...template.content.children, own);
  } catch (error) {
    if (!(error instanceof TypeError)) throw error; // no network
  }
}

// `toggle` does not bubble, so it is caught on its way down.
table?.addEventListener(
  "toggle",
  (event) => {
    const list = event.target.querySelector("[data-pivots]");
    if (event.target.open && list) countPivots(list);
  },
  true,
);

// A click on a row opens it, unless it follows a link or selects text.
table?.addEventListener("click", (event) => {
  const row = event.target.closest("tbody tr");
  if (!row || event.target.closest("a, summary, .inside") || !getSelection().isCollapsed) return;
  const details = row.querySelector("details");
  details.open = !details.open;
});

const hint = document.querySelector("[data-keys]");
if (hint) hint.hidden = false;
