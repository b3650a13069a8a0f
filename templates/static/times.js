// Shows the times of a list in the viewer's own zone; UTC stays at hand. Without this script all is in UTC.
"use strict";

const zone = Intl.DateTimeFormat().resolvedOptions().timeZone;
if (zone && zone !== "UTC") {
  // Swedish writes dates as ISO 8601 does.
  const format = new Intl.DateTimeFormat("sv-SE", { dateStyle: "short", timeStyle: "medium" });
  for (const time of document.querySelectorAll("time[data-local]")) {
    time.title = `${time.textContent} UTC`;
    time.textContent = format.format(new Date(time.dateTime));
  }
  for (const name of document.querySelectorAll("[data-zone]")) {
    name.textContent = zone;
  }
}
