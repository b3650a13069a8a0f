// Adds a copy button to each field that holds a secret. Without this script users select the text.
"use strict";

for (const field of document.querySelectorAll("input[data-copy]")) {
  const button = document.createElement("button");
  button.type = "button";
  button.textContent = "Copy";
  button.setAttribute("aria-live", "polite");
  button.addEventListener("click", async () => {
    field.select();
    try {
      await navigator.clipboard.writeText(field.value);
      button.textContent = "Copied";
    } catch {
      button.textContent = "Selected: copy it by hand"; // no secure context, or no permission
    }
  });
  field.addEventListener("focus", () => field.select());
  field.after(button);
}
