// Shows times in the user's own zone or in UTC, as they choose. Without this script all times are in UTC.
const own = Intl.DateTimeFormat().resolvedOptions().timeZone;
const CHOICE = "countersign-zone";
const toggle = document.querySelector("[data-zone-toggle]");

const chosen = () => (localStorage.getItem(CHOICE) === "utc" ? "UTC" : own || "UTC");

function formats(zone) {
  // Swedish dates look like ISO 8601.
  const day = { timeZone: zone, dateStyle: "short" };
  return {
    minute: new Intl.DateTimeFormat("sv-SE", { ...day, timeStyle: "short" }),
    second: new Intl.DateTimeFormat("sv-SE", { ...day, timeStyle: "medium" }),
  };
}

export function showLocalTimes(part) {
  const zone = chosen();
  const format = formats(zone);
  for (const time of part.querySelectorAll("time[data-local]")) {
    time.dataset.utc ??= time.textContent;
    const isExact = time.dataset.utc.length > "2026-01-31 08:00".length;
    if (zone === "UTC") {
      time.textContent = time.dataset.utc;
      time.removeAttribute("title");
    } else {
      time.textContent = (isExact ? format.second : format.minute).format(new Date(time.dateTime));
      time.title = `${time.dataset.utc} UTC`;
    }
  }
  for (const name of part.querySelectorAll("[data-zone]")) {
    name.textContent = zone;
  }
}

function showChoice() {
  toggle.textContent = chosen() === "UTC" ? `Show times in ${own}` : "Show times in UTC";
  showLocalTimes(document);
}

if (toggle && own && own !== "UTC") {
  toggle.addEventListener("click", () => {
    localStorage.setItem(CHOICE, chosen() === "UTC" ? "own" : "utc");
    showChoice();
  });
  toggle.hidden = false;
  showChoice();
} else {
  showLocalTimes(document);
}
