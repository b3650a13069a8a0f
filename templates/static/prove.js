// Verifies proofs of rows and receipts of exports in this browser, with what the page shows alone:
// SHA-256 and Ed25519, RFC 6962 and c2sp.org/signed-note. No word of the server's is believed.
import { Sha256 } from "./sha256.js";

const CANNOT = "This browser cannot verify Ed25519 signatures here: use the command below.";
const utf8 = new TextEncoder();

const fromBase64 = (text) => Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
const fromHex = (text) => Uint8Array.from(text.match(/../g), (pair) => parseInt(pair, 16));
const toHex = (bytes) => [...bytes].map((byte) => byte.toString(16).padStart(2, "0")).join("");

function digest(...parts) {
  const hash = new Sha256();
  for (const part of parts) hash.update(part);
  return hash.digest();
}

const nodeOf = (left, right) => fromHex(digest(Uint8Array.of(1), left, right));

function parseKey(vkey) {
  const [, name, id, encoded] = /^([^+]+)\+([0-9a-f]{8})\+(.+)$/.exec(vkey);
  return { name, id, raw: fromBase64(encoded).subarray(1) };
}

// The names of those of the keys that signed the text, with these lines of a note.
async function signers(text, lines, vkeys) {
  const found = [];
  for (const line of lines) {
    const [, name, encoded] = /^— (\S+) (\S+)$/.exec(line);
    const signature = fromBase64(encoded);
    for (const key of vkeys.map(parseKey)) {
      if (key.name !== name || key.id !== toHex(signature.subarray(0, 4))) continue;
      const imported = await crypto.subtle.importKey("raw", key.raw, "Ed25519", false, ["verify"]);
      if (await crypto.subtle.verify("Ed25519", imported, signature.subarray(4), utf8.encode(text))) {
        found.push(`${name}+${key.id}`);
      } else {
        throw new Error(`The signature of ${name} is wrong.`);
      }
    }
  }
  if (!found.length) throw new Error("No known key of the log signed it.");
  return found;
}

function parseNote(note) {
  const at = note.lastIndexOf("\n\n");
  return { text: note.slice(0, at + 1), lines: note.slice(at + 2).trim().split("\n") };
}

function rootAbove(leaf, index, size, siblings) {
  let [at, last, node] = [index, size - 1, leaf];
  const up = () => [at, last] = [Math.floor(at / 2), Math.floor(last / 2)];
  for (const sibling of siblings) {
    if (last === 0) throw new Error("The proof is too long.");
    if (at % 2 || at === last) {
      node = nodeOf(sibling, node);
      while (at % 2 === 0 && at) up();
    } else {
      node = nodeOf(node, sibling);
    }
    up();
  }
  if (last) throw new Error("The proof is too short.");
  return node;
}

// What is proved of an entry by a proof file (c2sp.org/tlog-proof), in a sentence.
async function verifyRow(entry, proof, vkeys) {
  const split = proof.indexOf("\n\n");
  const [, indexLine, ...hashes] = proof.slice(0, split).split("\n");
  const note = parseNote(proof.slice(split + 2));
  const [origin, size, root] = note.text.split("\n");
  const index = Number(indexLine.replace("index ", ""));
  const leaf = fromHex(digest(Uint8Array.of(0), utf8.encode(entry)));
  const found = rootAbove(leaf, index, Number(size), hashes.map(fromBase64));
  if (toHex(found) !== toHex(fromBase64(root))) {
    throw new Error("The row is not in the log as it is shown: the proof leads to another root.");
  }
  const signed = await signers(note.text, note.lines, vkeys);
  return `Verified in this browser: this row, byte for byte, is number ${index + 1} of the ${size} rows of the log ${origin}, as ${signed.join(" and ")} signed.`;
}

// What is proved by a receipt, as the API answers it.
async function verifyReceipt(receipt, vkeys) {
  if (!receipt.signature) throw new Error("This receipt is from before receipts were signed.");
  const { digest: _, signature, ...signed } = receipt;
  const text = `countersign export receipt v1\n${digest(utf8.encode(JSON.stringify(signed)))}\n`;
  const keys = await signers(text, [signature], vkeys);
  const note = parseNote(receipt.checkpoint);
  await signers(note.text, note.lines, vkeys);
  const [origin, size] = note.text.split("\n");
  return `Verified in this browser: ${keys[0]} signed this receipt of ${receipt.rows} rows, when the log ${origin} had at least ${size} rows.`;
}

async function json(address) {
  const answer = await fetch(address, { headers: { accept: "application/json" } });
  const said = await answer.json();
  if (!answer.ok) throw new Error(said.error);
  return said;
}

async function verify(panel) {
  const shown = (name) => panel.querySelector(`[data-${name}]`)?.textContent;
  if (panel.dataset.receipt) {
    const [receipt, { keys }] = [await json(panel.dataset.receipt), await json(panel.dataset.keys)];
    return verifyReceipt(receipt, keys);
  }
  return verifyRow(shown("entry"), shown("proof"), shown("keys").trim().split("\n"));
}

for (const panel of document.querySelectorAll("[data-prove]")) {
  const result = panel.querySelector("[data-prove-result]");
  const say = (words, tone) => {
    result.textContent = words;
    result.className = tone;
  };
  if (!globalThis.crypto?.subtle) {
    say(CANNOT, "muted");
    continue;
  }
  verify(panel).then(
    (words) => say(words, "done"),
    (error) => {
      if (error.name === "NotSupportedError") say(CANNOT, "muted");
      else say(`NOT verified. ${error.message}`, "fault");
    },
  );
}
