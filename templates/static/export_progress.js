// Shows how far a running export is; reloads the page once it has ended. Without it, users reload.
const EVERY_MS = 2000;
const panel = document.querySelector("[data-progress]");
const bar = panel.querySelector("progress");
const text = panel.querySelector("[data-progress-text]");
const number = new Intl.NumberFormat("en");

async function update() {
  const answer = await fetch(panel.dataset.progress, { headers: { accept: "application/json" } });
  if (!answer.ok) return; // signed out, or no longer allowed: a reload says so
  const { state, rows, sent_rows: sent } = await answer.json();
  if (state !== "running") {
    location.reload();
    return;
  }
  bar.value = sent;
  text.textContent = `${number.format(sent)} of ${number.format(rows)} rows sent`;
  setTimeout(again, EVERY_MS);
}

function again() {
  update().catch(() => setTimeout(again, EVERY_MS * 5)); // the service may be restarting
}

setTimeout(again, EVERY_MS);
