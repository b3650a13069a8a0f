// Shows times in the user's own zone, with UTC as tooltip. Without this script all times are in UTC.
const zone = Intl.DateTimeFormat().resolvedOptions().timeZone;
// Swedish dates look like ISO 8601.
const format = new Intl.DateTimeFormat("sv-SE", { dateStyle: "short", timeStyle: "medium" });

export function showLocalTimes(part) {
  if (!zone || zone === "UTC") return;
  for (const time of part.querySelectorAll("time[data-local]")) {
    time.title = `${time.textContent} UTC`;
    time.textContent = format.format(new Date(time.dateTime));
  }
  for (const name of part.querySelectorAll("[data-zone]")) {
    name.textContent = zone;
  }
}

showLocalTimes(document);
