// Compares files with an export: their size, then their SHA-256. No file leaves the browser.
import { Sha256 } from "./sha256.js";

const CHUNK = 4 * 1024 * 1024;
const number = new Intl.NumberFormat("en");
const panel = document.querySelector("[data-verify]");
const input = panel.querySelector("input");
const result = panel.querySelector("[data-verify-result]");
const size = Number(panel.dataset.bytes);
let latest = 0;

function say(lines) {
  result.replaceChildren(
    ...lines.map(({ words, tone }) => {
      const line = document.createElement("p");
      line.textContent = words;
      line.className = tone;
      return line;
    }),
  );
}

async function digestOf(file, isCurrent, onProgress) {
  const hash = new Sha256();
  for (let at = 0; at < file.size && isCurrent(); at += CHUNK) {
    hash.update(new Uint8Array(await file.slice(at, at + CHUNK).arrayBuffer()));
    onProgress(Math.floor((100 * at) / file.size));
  }
  return hash.digest();
}

async function verdictOn(file, isCurrent, onProgress) {
  if (file.size !== size) {
    const sizes = `it has ${number.format(file.size)} bytes, the exported file had ${number.format(size)}`;
    return { words: `${file.name} is NOT the exported file: ${sizes}.`, tone: "fault" };
  }
  const digest = await digestOf(file, isCurrent, onProgress);
  if (digest === panel.dataset.sha256) {
    return { words: `${file.name} is the exported file: size and SHA-256 are the same.`, tone: "done" };
  }
  return {
    words: `${file.name} is NOT the exported file: its size is the same, but its content differs. Its SHA-256 is ${digest}.`,
    tone: "fault",
  };
}

async function compare(files) {
  const mine = (latest += 1);
  const isCurrent = () => mine === latest; // until other files are chosen
  const lines = [];
  for (const file of files) {
    const onProgress = (percent) => {
      if (isCurrent()) say([...lines, { words: `Reading ${file.name}: ${percent} %`, tone: "muted" }]);
    };
    const verdict = await verdictOn(file, isCurrent, onProgress);
    if (!isCurrent()) return;
    lines.push(verdict);
    say(lines);
  }
}

input.addEventListener("change", () => {
  compare([...input.files]).catch(() => {
    say([{ words: "The file could not be read: choose it again.", tone: "fault" }]);
  });
});
panel.hidden = false;
