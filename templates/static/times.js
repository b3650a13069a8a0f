// Shows the times of a list in the viewer's own zone; UTC stays at hand. Without this script all is in UTC.
const zone = Intl.DateTimeFormat().resolvedOptions().timeZone;
// Swedish writes dates as ISO 8601 does.
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
