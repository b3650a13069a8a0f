// Bars of a histogram: the one under the pointer, touched or focused is read above them, arrow keys move between them,
// dragging selects their time range, and the axis is in the shown zone. Without this script each bar is a link with a
// tooltip; keyboard users have the table with the same links.
import { shownZone } from "./times.js";

const DRAG_PX = 6; // clicks may move the pointer slightly
const MINUTE = 60_000;
const BOUNDARIES = [1, 2, 5, 10, 15, 30, 60, 120, 180, 240, 360, 720, 1440]; // minutes, as in histogram.py
const [LABELS_MIN, LABELS_MAX] = [4, 6];

// The bars whose beginnings are labelled: `axis_places` in histogram.py, for the wall clock of the shown zone.
function placesOf(clock) {
  const all = [...clock.keys()];
  const unit = (at, step) => Math.floor(at / MINUTE / step);
  const places = (step) => all.filter((n) => unit(clock[n], step) !== unit(n ? clock[n - 1] : clock[n] - 1, step));
  const thinned = (many) => many.filter((_, n) => n % Math.ceil(many.length / LABELS_MAX) === 0);
  const at = BOUNDARIES.findIndex((step) => places(step).length <= LABELS_MAX);
  if (at < 0) return thinned(places(BOUNDARIES.at(-1)));
  const few = places(BOUNDARIES[at]);
  const finer = thinned(at ? places(BOUNDARIES[at - 1]) : all);
  return few.length < LABELS_MIN && finer.length > few.length ? finer : few;
}

function labelAxis(chart) {
  if (!["minute", "hour"].includes(chart.dataset.unit)) return; // days are of UTC
  const drawing = chart.querySelector("[data-edges]");
  const isUtc = shownZone() === "UTC";
  const starts = drawing.dataset.edges.split(" ").slice(0, -1).map((text) => new Date(text));
  const clock = starts.map((at) => at - (isUtc ? 0 : at.getTimezoneOffset() * MINUTE));
  for (const label of chart.querySelectorAll("text.c")) label.remove();
  placesOf(clock).forEach((place, n) => {
    const at = new Date(clock[place]);
    const isDay = clock[place] % (1440 * MINUTE) === 0;
    const label = document.createElementNS(chart.namespaceURI, "text");
    const left = (100 * place) / drawing.viewBox.baseVal.width;
    label.setAttribute("class", `c${left < 4 ? " s" : ""}${n % 2 ? " x2" : ""}${isDay ? " day" : ""}`);
    label.setAttribute("x", `${left}%`);
    label.setAttribute("y", "80");
    const [day, date, month] = at.toUTCString().split(/,? /);
    label.textContent = isDay ? `${day} ${Number(date)} ${month}` : at.toISOString().slice(11, 16);
    chart.append(label);
  });
}

function makeReadable(drawing) {
  const bars = [...drawing.querySelectorAll("a")];
  const reading = drawing.closest(".over")?.querySelector("[data-reading]");
  let shown = null;
  let touched = null; // a first touch reads a bar, a second one follows it

  function read(bar) {
    const text = bar?.querySelector("desc").textContent ?? "";
    bar?.setAttribute("aria-label", text);
    if (reading) Object.assign(reading, { textContent: text, hidden: !bar });
    shown = bar;
  }

  for (const bar of bars) {
    const title = bar.querySelector("title");
    const text = document.createElementNS(drawing.namespaceURI, "desc"); // not a tooltip, which would cover bars
    Object.assign(text.dataset, title.dataset);
    text.textContent = title.textContent;
    bar.setAttribute("aria-label", text.textContent);
    title.replaceWith(text);
  }
  bars.at(-1)?.setAttribute("tabindex", "0");
  const barOf = (event) => event.target.closest("a");
  drawing.addEventListener("pointerover", (event) => event.pointerType === "touch" || read(barOf(event)));
  drawing.addEventListener("pointerleave", (event) => event.pointerType === "touch" || read(null));
  drawing.addEventListener("focusin", (event) => read(barOf(event)));
  drawing.addEventListener("focusout", () => read(null));
  drawing.addEventListener("pointerdown", (event) => {
    touched = event.pointerType === "touch" && shown !== barOf(event) && barOf(event);
    read(barOf(event));
  });
  drawing.addEventListener("click", (event) => {
    if (touched && barOf(event) === touched) event.preventDefault();
    touched = null;
  });
  drawing.addEventListener("keydown", (event) => {
    const at = bars.indexOf(barOf(event));
    const to = bars[{ ArrowLeft: at - 1, ArrowRight: at + 1, Home: 0, End: bars.length - 1 }[event.key]];
    if (!to) return;
    event.preventDefault();
    for (const bar of bars) bar.setAttribute("tabindex", bar === to ? "0" : "-1");
    to.focus();
  });
}

function makeDraggable(drawing) {
  const edges = drawing.dataset.edges.split(" ");
  const link = drawing.querySelector("a");
  if (!link || edges.length < 2) return;
  const width = drawing.viewBox.baseVal.width;
  const selection = document.createElementNS(drawing.namespaceURI, "rect");
  selection.classList.add("selection");
  selection.setAttribute("y", "0");
  selection.setAttribute("height", "64");
  let begun = null; // where the pointer went down
  let range = null; // first and last bar, once it has been dragged
  let isDragged = false; // until the next pointerdown: the click that ends a drag is ignored

  function barAt(event) {
    const box = drawing.getBoundingClientRect();
    const bar = Math.floor(((event.clientX - box.left) / box.width) * width);
    return Math.min(Math.max(bar, 0), edges.length - 2);
  }

  function cancel() {
    begun = null;
    range = null;
    selection.remove();
  }

  drawing.addEventListener("pointerdown", (event) => {
    cancel();
    isDragged = false;
    if (event.button === 0) begun = { x: event.clientX, bar: barAt(event) };
  });

  drawing.addEventListener("pointermove", (event) => {
    if (!begun) return;
    if (!range) {
      if (Math.abs(event.clientX - begun.x) < DRAG_PX) return;
      drawing.setPointerCapture(event.pointerId);
      drawing.append(selection);
      isDragged = true;
    }
    const bar = barAt(event);
    range = [Math.min(begun.bar, bar), Math.max(begun.bar, bar)];
    selection.setAttribute("x", range[0]);
    selection.setAttribute("width", range[1] - range[0] + 1);
  });

  drawing.addEventListener("pointerup", () => {
    if (range) {
      const address = new URL(link.href.baseVal, location.href);
      address.searchParams.set("since", edges[range[0]]);
      address.searchParams.set("until", edges[range[1] + 1]);
      location.assign(address);
    }
    begun = null; // the selection stays visible until the page changes
  });

  drawing.addEventListener("click", (event) => {
    if (isDragged) event.preventDefault();
  });
  drawing.addEventListener("pointercancel", cancel);
  drawing.addEventListener("dragstart", (event) => event.preventDefault());
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape") cancel();
  });
  window.addEventListener("pageshow", cancel); // after going back, the old selection is cleared
  drawing.dataset.canDrag = "";
}

for (const drawing of document.querySelectorAll("svg[data-edges]")) {
  makeReadable(drawing);
  makeDraggable(drawing);
}
const labelAxes = () => document.querySelectorAll("svg.chart").forEach(labelAxis);
document.addEventListener("zonechange", labelAxes);
labelAxes();
