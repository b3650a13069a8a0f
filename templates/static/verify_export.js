// Compares a file with an export: its size, then its SHA-256. The file does not leave the browser.
import { Sha256 } from "./sha256.js";

const CHUNK = 4 * 1024 * 1024;
const number = new Intl.NumberFormat("en");
const panel = document.querySelector("[data-verify]");
const input = panel.querySelector("input");
const result = panel.querySelector("[data-verify-result]");
const size = Number(panel.dataset.bytes);
let latest = 0;

function say(words, tone) {
  result.textContent = words;
  result.className = tone;
}

async function digestOf(file, isCurrent) {
  const hash = new Sha256();
  for (let at = 0; at < file.size && isCurrent(); at += CHUNK) {
    hash.update(new Uint8Array(await file.slice(at, at + CHUNK).arrayBuffer()));
    if (at > 0) say(`Reading ${file.name}: ${Math.floor((100 * at) / file.size)} %`, "muted");
  }
  return hash.digest();
}

async function compare(file) {
  const mine = (latest += 1);
  const isCurrent = () => mine === latest;
  if (file.size !== size) {
    const sizes = `it has ${number.format(file.size)} bytes, the exported file had ${number.format(size)}`;
    say(`${file.name} is NOT the exported file: ${sizes}.`, "fault");
    return;
  }
  say(`Reading ${file.name}…`, "muted");
  const digest = await digestOf(file, isCurrent);
  if (!isCurrent()) return; // another file was chosen meanwhile
  if (digest === panel.dataset.sha256) {
    say(`${file.name} is the exported file: size and SHA-256 are the same.`, "done");
  } else {
    say(`${file.name} is NOT the exported file: its size is the same, but its content differs. Its SHA-256 is ${digest}.`, "fault");
  }
}

input.addEventListener("change", () => {
  const [file] = input.files;
  if (file) compare(file).catch(() => say("The file could not be read: choose it again.", "fault"));
});
panel.hidden = false;
