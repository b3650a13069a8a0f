// Signs in with a passkey, and adds one. Each takes two requests: one gets the options, one sends the
// browser's answer. Without this script, or passkeys, the forms stay hidden.
"use strict";

const ceremonies = {
  "sign-in": async (options) =>
    navigator.credentials.get({ publicKey: PublicKeyCredential.parseRequestOptionsFromJSON(options) }),
  register: async (options) =>
    navigator.credentials.create({ publicKey: PublicKeyCredential.parseCreationOptionsFromJSON(options) }),
};

// By the names of WebAuthn's errors: their own texts are for developers.
const reasons = {
  AbortError: "The request was interrupted. Try again.",
  InvalidStateError: "This device or security key already has a passkey of yours.",
  NotAllowedError: "No passkey was used: it was cancelled, or took too long.",
  NotSupportedError: "This device cannot create a passkey for this service.",
  SecurityError: "Passkeys do not work at this address.",
  SyntaxError: "The service sent an invalid response. Try again.",
  TypeError: "The service did not respond. Try again.",
};

async function send(path, body) {
  const response = await fetch(path, {
    method: "POST",
    headers: { accept: "application/json", "content-type": "application/json" },
    body: JSON.stringify(body),
  });
  const content = await response.json();
  if (response.status === 403 && content.error === "sign in again to do this") {
    window.location.assign("/admin/ui/profile/sign-in-again");
  }
  if (!response.ok) {
    throw new Error(`${content.error.charAt(0).toUpperCase()}${content.error.slice(1)}.`);
  }
  return content;
}

async function perform(form) {
  const fields = Object.fromEntries(new FormData(form));
  const options = await send(form.dataset.begin, fields);
  const credential = await ceremonies[form.dataset.passkey](options);
  const { next } = await send(form.dataset.finish, { ...fields, credential: credential.toJSON() });
  if (next) {
    window.location.assign(next);
    return;
  }
  form.querySelector("[data-message]").textContent = "You are signed in again. Now send the form again.";
}

async function submitted(event) {
  event.preventDefault();
  const form = event.currentTarget;
  const button = form.querySelector("button");
  const message = form.querySelector("[data-message]");
  button.disabled = true;
  message.textContent = "Follow the instructions of your browser …";
  try {
    await perform(form);
  } catch (error) {
    message.textContent = reasons[error.name] ?? error.message;
    button.disabled = false;
    button.focus();
  }
}

if (window.PublicKeyCredential?.parseCreationOptionsFromJSON) {
  for (const form of document.querySelectorAll("form[data-passkey]")) {
    form.addEventListener("submit", submitted);
    form.hidden = false;
  }
  for (const note of document.querySelectorAll("[data-without-passkeys]")) {
    note.hidden = true;
  }
}
