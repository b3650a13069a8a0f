// Opens the page "Jump to anything" as a dialog: its results, as the server renders them, while one types. Without this
// script the link in the bar leads to the page.
const AFTER_MS = 120; // wait for a pause in typing

const link = document.querySelector("a[data-find]");
const dialog = document.createElement("dialog");
dialog.className = "palette";
dialog.ariaLabel = link.ariaLabel;
dialog.setAttribute("closedby", "any");
dialog.innerHTML = `
  <form role="search">
    <input type="search" name="q" maxlength="256" autocomplete="off" autocapitalize="off" spellcheck="false">
    <button class="quiet" type="button">Close</button>
  </form>
  <p class="visually-hidden" role="status"></p>
  <div class="results"></div>`;
const [form, status, results] = dialog.children;
const [input, close] = form.elements;
form.action = link.href;
input.ariaLabel = input.placeholder = "A page, an action, a package, a job, a person";

let waiting = 0;
let asking = null;

// Shows what the server finds, or that it did not answer; true if it did. A session that has ended leads to the sign-in.
async function ask(isEntered = false) {
  clearTimeout(waiting);
  asking?.abort();
  asking = new AbortController();
  try {
    const response = await fetch(`${link.href}?${new URLSearchParams({ q: input.value })}`, { signal: asking.signal });
    if (response.status === 401 || response.redirected) return form.submit();
    if (!response.ok) throw new TypeError(`status ${response.status}`);
    const page = new DOMParser().parseFromString(await response.text(), "text/html");
    results.replaceChildren(...page.querySelector("[data-found]").childNodes);
    results.scrollTop = 0;
    tell(`${results.querySelectorAll("a").length} results`, "visually-hidden");
    return true;
  } catch (error) {
    if (error.name === "AbortError") return;
    if (!(error instanceof TypeError)) throw error;
    if (isEntered) return form.submit(); // the page says what is wrong
    results.replaceChildren();
    tell("The search did not answer: type on to try again, or press Enter to leave this page for it.", "fault");
  }
}

function tell(text, className) {
  status.textContent = text;
  status.className = className;
}

function open() {
  if (document.getElementById("jump")) return document.getElementById("jump").focus(); // the page itself
  if (document.querySelector("dialog[open]")) return;
  document.body.append(dialog);
  dialog.showModal();
  input.select();
  ask();
}

document.addEventListener("keydown", (event) => {
  if (event.isComposing || event.altKey || event.shiftKey) return;
  const isCommand = event.ctrlKey || event.metaKey;
  const isTyping = event.target.closest("input:not([type=checkbox]), textarea, select, dialog");
  // In the log, a slash is its own search's.
  const isSlash = event.key === "/" && !isCommand && !isTyping && !document.getElementById("search");
  if (!isSlash && !(isCommand && event.key === "k")) return;
  event.preventDefault();
  open();
});

dialog.addEventListener("keydown", (event) => {
  const stops = [...dialog.querySelectorAll(event.key === "Tab" ? "input, button, a" : "input, a")];
  const step = { ArrowDown: 1, ArrowUp: -1, Tab: event.shiftKey ? -1 : 1 }[event.key];
  if (step) {
    event.preventDefault();
    stops.at((Math.max(stops.indexOf(document.activeElement), 0) + step) % stops.length).focus();
  } else if (event.key.length === 1 && event.target.matches("a") && !event.ctrlKey && !event.metaKey) {
    input.focus(); // which receives the letter
  }
});

link.addEventListener("click", (event) => {
  if (event.ctrlKey || event.metaKey || event.shiftKey) return; // a new tab
  event.preventDefault();
  open();
});
input.addEventListener("input", () => {
  clearTimeout(waiting);
  waiting = setTimeout(ask, AFTER_MS);
});
form.addEventListener("submit", async (event) => {
  event.preventDefault();
  if (await ask(true)) results.querySelector("a")?.click();
});
close.addEventListener("click", () => dialog.close());
dialog.addEventListener("close", () => {
  clearTimeout(waiting);
  asking?.abort();
});
addEventListener("pagehide", () => dialog.close()); // so that it is not open after the way back
link.setAttribute("aria-keyshortcuts", "Control+K Meta+K");
link.insertAdjacentHTML("beforeend", "<kbd class='wide-only'></kbd>");
link.lastElementChild.textContent = /Mac|iPhone|iPad/.test(navigator.platform) ? "⌘K" : "Ctrl K";
