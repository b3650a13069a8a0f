// Completes the text typed into a filter. Without this script fields offer the completions in the page.
const AFTER_MS = 200; // wait for a pause in typing

function completeField(field, address) {
  const list = field.list;
  const initial = [...list.children]; // the completions in the page
  let waiting = 0;
  let asking = null;

  async function ask(typed) {
    address.searchParams.set("name", field.name);
    address.searchParams.set("prefix", typed);
    asking = new AbortController();
    try {
      const response = await fetch(address, { signal: asking.signal });
      if (!response.ok) return; // too slow, or an invalid prefix: the list stays
      const { values } = await response.json();
      list.replaceChildren(...values.map((value) => new Option("", value)));
    } catch (error) {
      if (error.name !== "AbortError" && !(error instanceof TypeError)) throw error;
    }
  }

  field.addEventListener("input", (event) => {
    clearTimeout(waiting);
    asking?.abort();
    if (event.inputType === "insertReplacementText" || !event.inputType) return; // a completion was chosen
    if (field.value) waiting = setTimeout(ask, AFTER_MS, field.value);
    else list.replaceChildren(...initial);
  });
}

const form = document.querySelector("form[data-values]");
for (const name of form?.dataset.completed.split(" ") ?? []) {
  const field = form.elements.namedItem(name);
  for (const one of field instanceof RadioNodeList ? field : [field]) {
    if (one?.list) completeField(one, new URL(form.dataset.values, location.href));
  }
}
