"use strict";
const at = (id) => document.getElementById(id);
let token = "";
let saliency = {};
let chosen = null;

function headers() {
  return token ? { Authorization: `Bearer ${token}` } : {};
}

function trouble(text) {
  at("trouble").textContent = text;
  at("trouble").hidden = !text;
}

async function ask(path, options = {}) {
  const answer = await fetch(path, { ...options, headers: headers() });
  const found = await answer.json();
  if (!answer.ok) {
    throw Object.assign(new Error(found.error), { status: answer.status });
  }
  return found;
}

async function describe() {
  let model;
  try {
    model = await ask("v1/model");
  } catch (error) {
    at("access").hidden = error.status !== 401;
    trouble(error.status === 401 && !token ? "" : error.message);
    at("about").textContent = error.status === 401 ? "This server wants a token" : "";
    return;
  }
  trouble("");
  at("access").hidden = true;
  document.title = model.net;
  at("net").textContent = model.net;
  const step = model.iteration === null ? "" : `, iteration ${model.iteration.toLocaleString("en")}`;
  const [main] = model.outputs;
  const what = main.n_classes ? `${main.n_classes} ${main.task === "multi_label" ? "labels" : "classes"}` : main.task;
  at("about").textContent = `${what}, from ${model.run}${step}`;
  at("ask").hidden = !model.takes_pictures;
  at("json").hidden = false;
  saliency = model.saliency;
  const secret = token ? " -H 'Authorization: Bearer TOKEN'" : "";
  const form = model.takes_pictures ? "-F file=@picture.jpg" : "-H 'Content-Type: application/json' -d @request.json";
  at("example").textContent = `curl${secret} ${form} ${location.origin}/v1/predict`;
}

const methods = [...document.querySelectorAll("[data-method]")];
const names = { gradient: "Gradient times input", grad_cam: "Grad-CAM", occlusion: "Occlusion" };

// The words of reports and pages: the name of a class, or the number of a class without a name.
function className(best, row) {
  return best.top_names?.[row] ?? String(best.top_classes[row]);
}

function offerMaps(best) {
  const works = methods.filter((button) => !saliency[button.dataset.method]);
  for (const button of methods) button.hidden = Boolean(saliency[button.dataset.method]);
  at("map").hidden = true;
  at("where").hidden = !works.length;
  const reasons = Object.entries(saliency).filter(([, reason]) => reason);
  at("missing").textContent = reasons.map(([method, reason]) => `No ${names[method]}: ${reason}.`).join(" ");
  at("missing").hidden = !reasons.length;
  const classes = best.top_classes ?? [];
  at("of_class").hidden = document.querySelector("label[for=of_class]").hidden = !classes.length;
  at("of_class").replaceChildren(...classes.map((number, row) =>
    new Option(className(best, row), number)));
}

async function drawMap(method) {
  const body = new FormData();
  body.append("file", chosen);
  const query = new URLSearchParams({ method });
  if (at("of_class").value) query.set("class", at("of_class").value);
  const asked = chosen;
  trouble("");
  for (const button of methods) button.disabled = true;
  const began = performance.now();
  try {
    const found = await ask(`v1/saliency?${query}`, { method: "POST", body });
    if (asked !== chosen) return;
    const bytes = Uint8Array.from(atob(found.picture), (letter) => letter.charCodeAt(0));
    const image = at("map_picture");
    URL.revokeObjectURL(image.src);
    image.onload = () => image.classList.toggle("small", image.naturalWidth < 112);
    image.src = URL.createObjectURL(new Blob([bytes], { type: "image/png" }));
    const name = found.class_name === undefined ? `${found.output} ${found.class}` : `class ${found.class_name}`;
    image.alt = `${names[method]} of the picture for ${name}`;
    const seconds = (performance.now() - began) / 1000;
    at("map_caption").textContent = `${names[method]} for ${name}, drawn in ${seconds.toFixed(1)} s`;
    at("map").hidden = false;
  } catch (error) {
    trouble(error.message);
  } finally {
    for (const button of methods) button.disabled = false;
  }
}

// As share_text of sizes.py: within 0.5 % of none or all, one digit more.
const shareText = (share) => `${(100 * share).toFixed((share > 0 && share < 0.005) || (share > 0.995 && share < 1) ? 2 : 1)} %`;

function show(found, seconds) {
  const best = found.predictions[0];
  offerMaps(best);
  const hasClasses = Boolean(best.top_classes);
  at("winner").hidden = at("classes").hidden = !hasClasses;
  at("answer").hidden = hasClasses;
  at("took").textContent = `answered in ${Math.round(1000 * seconds)} ms`;
  at("result").hidden = false;
  if (!hasClasses) {
    at("answer").textContent = JSON.stringify(best).slice(0, 4000);
    return;
  }
  at("winner").textContent = className(best, 0);
  at("classes").replaceChildren(...best.top_classes.map((_, row) => {
    const share = best.top_probabilities[row];
    const line = document.createElement("li");
    const label = line.appendChild(document.createElement("span"));
    label.className = "name";
    label.textContent = className(best, row);
    const number = line.appendChild(document.createElement("span"));
    number.className = "share";
    number.textContent = shareText(share);
    const bar = line.appendChild(document.createElement("meter"));
    bar.value = share;
    bar.setAttribute("aria-label", `${className(best, row)}: ${number.textContent}`);
    return line;
  }));
}

async function predict(file) {
  trouble("");
  chosen = file;
  at("result").hidden = at("where").hidden = true;
  const image = at("shown");
  URL.revokeObjectURL(image.src);
  image.onload = () => image.classList.toggle("small", image.naturalWidth < 112);
  image.onerror = () => { image.hidden = true; at("hint").hidden = false; };
  image.src = URL.createObjectURL(file);
  image.hidden = false;
  at("hint").hidden = true;
  const body = new FormData();
  body.append("file", file);
  const began = performance.now();
  try {
    show(await ask("v1/predict?scores=false", { method: "POST", body }), (performance.now() - began) / 1000);
  } catch (error) {
    trouble(error.message);
  }
}

for (const button of methods) button.addEventListener("click", () => drawMap(button.dataset.method));
at("picture").addEventListener("change", (event) => {
  if (event.target.files.length) predict(event.target.files[0]);
});
for (const kind of ["dragover", "dragleave", "drop"]) {
  at("choose").addEventListener(kind, (event) => {
    event.preventDefault();
    at("choose").classList.toggle("over", kind === "dragover");
    if (kind === "drop" && event.dataTransfer.files.length) predict(event.dataTransfer.files[0]);
  });
}
at("access").addEventListener("submit", (event) => {
  event.preventDefault();
  token = at("token").value;
  describe();
});
describe();
