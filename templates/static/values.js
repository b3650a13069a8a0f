// Completes what is typed into a filter. Without this script fields complete to what the page was made with.
const AFTER_MS = 200; // who types on has not asked yet

function completeField(field, address) {
  const list = field.list;
  const known = [...list.children]; // what the page was made with
  let waiting = 0;
  let asking = null;

  async function ask(typed) {
    address.searchParams.set("name", field.name);
    address.searchParams.set("prefix", typed);
    asking = new AbortController();
    try {
      const answer = await fetch(address, { signal: asking.signal });
      if (!answer.ok) return; // too slow, or nothing that could be a beginning: the list stays
      const { values } = await answer.json();
      list.replaceChildren(...values.map((value) => new Option("", value)));
    } catch (error) {
      if (error.name !== "AbortError" && !(error instanceof TypeError)) throw error;
    }
  }

  field.addEventListener("input", (event) => {
    clearTimeout(waiting);
    asking?.abort();
    if (event.inputType === "insertReplacementText" || !event.inputType) return; // one was chosen
    if (field.value) waiting = setTimeout(ask, AFTER_MS, field.value);
    else list.replaceChildren(...known);
  });
}

const form = document.querySelector("form[data-values]");
for (const name of form?.dataset.completed.split(" ") ?? []) {
  const field = form.elements.namedItem(name);
  for (const one of field instanceof RadioNodeList ? field : [field]) {
    if (one?.list) completeField(one, new URL(form.dataset.values, location.href));
  }
}
