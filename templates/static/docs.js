// A form at each endpoint that reads JSON: it asks with the reader's session, and shows the answer. Without this script
// there is the line for a shell.
const CHARS_MAX = 20_000; // of an answer; a longer one is cut

async function answer(address) {
  const response = await fetch(address, { headers: { accept: "application/json" } });
  const text = await response.text();
  const isJson = response.headers.get("content-type")?.includes("json");
  const shown = isJson ? JSON.stringify(JSON.parse(text), null, 2) : text;
  const end = shown.length > CHARS_MAX ? `\n… ${shown.length - CHARS_MAX} more characters` : "";
  return `GET ${address}\n${response.status} ${response.statusText}\n\n${shown.slice(0, CHARS_MAX)}${end}`;
}

function addForm(section) {
  const { get: path, query } = section.dataset;
  const variables = [...path.matchAll(/\{(\w+)\}/g)].map(([, name]) => name);
  const part = document.createElement("details");
  part.className = "opens";
  part.innerHTML = `<summary>Try it</summary>
    <form class="fields"><div class="field-row"></div>
    <p class="hint">With your session, and what it may read.</p>
    <div><button type="submit">Send</button></div>
    <pre tabindex="0" role="status" hidden></pre></form>`;
  const [form] = part.getElementsByTagName("form");
  const output = form.querySelector("pre");
  output.ariaLabel = `Answer of GET ${path}`;
  for (const name of [...variables, ...query.split(" ").filter(Boolean)]) {
    const label = document.createElement("label");
    const input = document.createElement("input");
    Object.assign(input, { name, required: variables.includes(name), autocomplete: name === "slug" ? "on" : "off" });
    label.append(name, input);
    form.firstElementChild.append(label);
  }
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    const typed = [...new FormData(form)].filter(([, value]) => value);
    const place = path.replace(/\{(\w+)\}/g, (_, name) => encodeURIComponent(form.elements.namedItem(name).value));
    const rest = new URLSearchParams(typed.filter(([name]) => !variables.includes(name)));
    output.hidden = false;
    output.textContent = "…";
    try {
      output.textContent = await answer(rest.size ? `${place}?${rest}` : place);
    } catch (error) {
      output.textContent = String(error); // no network
    }
  });
  section.querySelector("pre").after(part);
}

for (const endpoint of document.querySelectorAll("details.endpoint")) {
  const section = endpoint.querySelector("section[data-get]");
  if (section) endpoint.addEventListener("toggle", () => addForm(section), { once: true });
}
