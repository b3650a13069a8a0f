// Shows all times of a page in the user's own zone or in UTC, as they choose: in rows, details, tooltips and fields. What
// is typed is sent in UTC. Without this script all times are in UTC.
const own = Intl.DateTimeFormat().resolvedOptions().timeZone;
const CHOICE = "countersign-zone";
const toggle = document.querySelector("[data-zone-toggle]");

export const shownZone = () => (localStorage.getItem(CHOICE) === "utc" ? "UTC" : own || "UTC");

function formats(zone) {
  // Swedish dates look like ISO 8601.
  const day = { timeZone: zone, dateStyle: "short" };
  return {
    minute: new Intl.DateTimeFormat("sv-SE", { ...day, timeStyle: "short" }),
    second: new Intl.DateTimeFormat("sv-SE", { ...day, timeStyle: "medium" }),
  };
}

// `instant` as exact as the text `utc`, to the minute, the second or a fraction of it.
function alike(utc, instant, format) {
  if (utc.length === "08:00:00".length) return format.second.format(instant).slice(-utc.length);
  if (utc.length <= "2026-01-31 08:00".length) return format.minute.format(instant);
  return format.second.format(instant) + utc.slice("2026-01-31 08:00:00".length);
}

export function showLocalTimes(part) {
  const zone = shownZone();
  const format = formats(zone);
  for (const time of part.querySelectorAll("time[data-local]")) {
    time.dataset.utc ??= time.textContent;
    const { utc } = time.dataset;
    const hasDate = utc.includes("-");
    time.textContent = zone === "UTC" ? utc : alike(utc, new Date(time.dateTime), format);
    if (zone === "UTC" && hasDate) time.removeAttribute("title");
    else time.title = `${hasDate ? utc : time.dateTime.slice(0, 19).replace("T", " ")} UTC`;
  }
  for (const time of part.querySelectorAll("time[data-age]")) {
    time.dataset.utc ??= time.title;
    time.title = zone === "UTC" ? time.dataset.utc : `${format.second.format(new Date(time.dateTime))} ${zone}`;
  }
  for (const said of part.querySelectorAll("[data-at]")) {
    said.dataset.utc ??= said.title;
    const at = `${format.minute.format(new Date(said.dataset.at))} ${zone}`;
    said.title = zone === "UTC" ? said.dataset.utc : said.dataset.utc.replace(/[-\d]{10} [:\d]{5} UTC/, at);
  }
  for (const bar of part.querySelectorAll("title[data-since], desc[data-since]")) {
    bar.dataset.utc ??= bar.textContent;
    const counts = bar.dataset.utc.slice(bar.dataset.utc.indexOf(" UTC: ") + " UTC: ".length);
    const [since, until] = [bar.dataset.since, bar.dataset.until].map((at) => format.minute.format(new Date(at)));
    const end = since.slice(0, 10) === until.slice(0, 10) ? until.slice(11) : until;
    bar.textContent = zone === "UTC" ? bar.dataset.utc : `${since} to ${end} ${zone}: ${counts}`;
  }
  for (const picker of part.querySelectorAll("input[type=datetime-local]")) {
    const at = picker.value && new Date(picker.value + (picker.dataset.zone === own ? "" : "Z"));
    const { length } = picker.value;
    if (at) picker.value = (zone === "UTC" ? at.toISOString() : format.second.format(at).replace(" ", "T")).slice(0, length);
    picker.dataset.zone = zone;
  }
  for (const name of part.querySelectorAll("span[data-zone]")) {
    name.textContent = zone;
  }
}

// `text` with the times of the shown zone in its words since: and until: as those of UTC.
function inUtc(text) {
  return text.replace(/\b(since|until):(\d{4}-\d\d-\d\d)(T\d\d:\d\d:\d\d)?(?=\s|$)/g, (word, name, day, time) => {
    const at = new Date(day + (time ?? "T00:00:00"));
    if (isNaN(at)) return word; // the server says what is wrong with it
    if (name === "until" && !time) at.setDate(at.getDate() + 1); // a day, to its end
    return `${name}:${at.toISOString().slice(0, 19)}Z`;
  });
}

// Pickers and searches are in the shown zone; what is sent is UTC.
document.addEventListener("formdata", ({ target, formData }) => {
  for (const picker of target.querySelectorAll("input[type=datetime-local]")) {
    if (!picker.value || picker.dataset.zone === "UTC") continue;
    formData.set(picker.name, new Date(picker.value).toISOString().slice(0, picker.value.length));
  }
  if (shownZone() !== "UTC" && target.matches("[role=search]") && formData.has("q")) formData.set("q", inUtc(formData.get("q")));
});

function showChoice() {
  toggle.title = shownZone() === "UTC" ? `Show times in ${own}` : "Show times in UTC";
  showLocalTimes(document);
  document.dispatchEvent(new Event("zonechange"));
}

if (toggle && own && own !== "UTC") {
  toggle.addEventListener("click", () => {
    localStorage.setItem(CHOICE, shownZone() === "UTC" ? "own" : "utc");
    showChoice();
  });
  toggle.disabled = false;
  showChoice();
} else {
  showLocalTimes(document);
}
