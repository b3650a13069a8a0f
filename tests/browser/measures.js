// Measures of the page that is open, in CSS pixels; measures.py says what each is for.
() => {
  const box = node => node.getBoundingClientRect();
  const isShown = node => node.checkVisibility({ checkVisibilityCSS: true })
    && box(node).width > 1 && box(node).height > 1;
  const main = document.querySelector("main");
  const rows = [...main.querySelectorAll("tbody tr")]
    .filter(row => isShown(row) && row.querySelectorAll("td").length > 1
      && !row.matches(".group, .day, .details"));
  const inList = rows.filter(row => !row.closest("details > :not(summary)"));

  // Runs of letters and digits: a line may end at a space, a slash or a hyphen, and nowhere else.
  const broken = [];
  const texts = document.createTreeWalker(main, NodeFilter.SHOW_TEXT);
  const coloured = new Set();
  while (texts.nextNode()) {
    const text = texts.currentNode;
    const parent = text.parentElement;
    if (!text.data.trim() || !isShown(parent) || parent.closest("svg, pre, textarea, option")) continue;
    coloured.add(parent);
    for (const word of text.data.matchAll(/[^\s/\-–—​]{2,}/gu)) {
      const range = document.createRange();
      range.setStart(text, word.index);
      range.setEnd(text, word.index + word[0].length);
      const lines = new Set([...range.getClientRects()].filter(one => one.width).map(one => Math.round(one.top)));
      if (lines.size > 1) broken.push(word[0]);
    }
  }

  // A text is cut although there is room if the columns beside it are wider than anything in them.
  const cut = [];
  let short = 0;
  for (const table of main.querySelectorAll("table")) {
    const all = [...table.querySelectorAll("tbody tr")].filter(isShown)
      .filter(row => new Set([...row.cells].filter(isShown).map(cell => Math.round(box(cell).top))).size === 1);
    const spare = [];
    const missing = [];
    for (const row of all) {
      let column = 0;
      for (const cell of row.cells) {
        if (cell.colSpan > 1) break;
        const clipped = [cell, ...cell.querySelectorAll("*")].filter(one => isShown(one)
          && getComputedStyle(one).textOverflow === "ellipsis" && one.scrollWidth > one.clientWidth + 1);
        const range = document.createRange();
        range.selectNodeContents(cell);
        const style = getComputedStyle(cell);
        const inner = box(cell).width - parseFloat(style.paddingLeft) - parseFloat(style.paddingRight);
        spare[column] = Math.min(spare[column] ?? Infinity, clipped.length ? 0 : inner - box(range).width);
        for (const one of clipped) missing.push([one.scrollWidth - one.clientWidth, one.textContent.trim()]);
        column += 1;
      }
    }
    const room = spare.reduce((sum, one) => sum + Math.max(0, one === Infinity ? 0 : one), 0);
    short += missing.length;
    for (const [pixels, text] of missing) if (pixels <= room) cut.push(text);
  }

  const edges = [document.querySelector("h1"), ...main.children].filter(one => one && isShown(one))
    .map(one => Math.round(box(one).left + parseFloat(getComputedStyle(one).paddingLeft)
      * (getComputedStyle(one).backgroundColor === "rgba(0, 0, 0, 0)" && getComputedStyle(one).borderLeftWidth === "0px")));

  const parsed = colour => {
    const numbers = colour.match(/[\d.]+/g).map(Number);
    const scale = colour.startsWith("color(") ? 255 : 1;
    return { rgb: numbers.slice(0, 3).map(one => one * scale), alpha: numbers[3] ?? 1 };
  };
  const over = (front, back) => front.rgb.map((one, i) => one * front.alpha + back[i] * (1 - front.alpha));
  const ground = node => {
    if (!node) return [255, 255, 255];
    const colour = parsed(getComputedStyle(node).backgroundColor);
    return colour.alpha === 1 ? colour.rgb : over(colour, ground(node.parentElement));
  };
  const luminance = rgb => rgb.map(one => one / 255)
    .map(one => one <= 0.04045 ? one / 12.92 : ((one + 0.055) / 1.055) ** 2.4)
    .reduce((sum, one, i) => sum + one * [0.2126, 0.7152, 0.0722][i], 0);
  let contrast = 21;
  let faintest = "";
  for (const node of coloured) {
    const back = ground(node);
    const [light, dark] = [luminance(over(parsed(getComputedStyle(node).color), back)), luminance(back)].sort((a, b) => b - a);
    const ratio = (light + 0.05) / (dark + 0.05);
    if (ratio < contrast) [contrast, faintest] = [ratio, node.textContent.trim().slice(0, 40)];
  }

  return {
    row_heights: inList.map(row => Math.round(box(row).height)),
    rows_in_view: inList.filter(row => box(row).bottom <= innerHeight).length,
    words_broken: broken,
    texts_short: short,
    texts_cut: cut,
    left_edges: [...new Set(edges)].sort((a, b) => a - b),
    contrast: Math.round(contrast * 100) / 100,
    faintest,
    page_height: document.documentElement.scrollHeight,
    page_width: document.documentElement.scrollWidth,
  };
}
