// Dragging over the bars of a histogram selects their time range. Without this script each bar is a link; keyboard
// users have the table with the same links either way.
const BAR_WIDTH = 10; // in the drawing's own units
const DRAG_PX = 6; // clicks may move the pointer slightly

function makeDraggable(drawing) {
  const edges = drawing.dataset.edges.split(" ");
  const link = drawing.querySelector("a");
  if (!link || edges.length < 2) return;
  const width = drawing.viewBox.baseVal.width;
  const selection = document.createElementNS(drawing.namespaceURI, "rect");
  selection.classList.add("selection");
  selection.setAttribute("y", "0");
  selection.setAttribute("height", "140");
  let begun = null; // where the pointer went down
  let range = null; // first and last bar, once it has been dragged
  let isDragged = false; // until the next pointerdown: the click that ends a drag is ignored

  function barAt(event) {
    const box = drawing.getBoundingClientRect();
    const bar = Math.floor(((event.clientX - box.left) / box.width) * (width / BAR_WIDTH));
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
    selection.setAttribute("x", range[0] * BAR_WIDTH);
    selection.setAttribute("width", (range[1] - range[0] + 1) * BAR_WIDTH);
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

for (const drawing of document.querySelectorAll("svg[data-edges]")) makeDraggable(drawing);
