// Copy buttons: beside fields that hold a secret, and those of a page for its address or a part of it. Without this
// script users select the text.
"use strict";

async function copy(button, text, onFailure) {
  const label = button.textContent;
  try {
    await navigator.clipboard.writeText(text);
    button.textContent = "Copied";
    setTimeout(() => (button.textContent = label), 2000);
  } catch {
    button.textContent = onFailure; // no secure context, or no permission
  }
}

for (const field of document.querySelectorAll("input[data-copy]")) {
  const button = document.createElement("button");
  button.type = "button";
  button.textContent = "Copy";
  button.setAttribute("aria-live", "polite");
  button.addEventListener("click", () => {
    field.select();
    copy(button, field.value, "Selected: copy it by hand");
  });
  field.addEventListener("focus", () => field.select());
  field.after(button);
}

for (const button of document.querySelectorAll("button[data-copy-link], button[data-copy-of]")) {
  const part = document.getElementById(button.dataset.copyOf);
  button.setAttribute("aria-live", "polite");
  button.addEventListener("click", () => {
    copy(button, part ? part.textContent : location.href.split("#")[0], "Not allowed: copy it by hand");
  });
  button.hidden = false;
}
