"use strict";
const at = (id) => document.getElementById(id);
let token = "";

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
  const secret = token ? " -H 'Authorization: Bearer TOKEN'" : "";
  const form = model.takes_pictures ? "-F file=@picture.jpg" : "-H 'Content-Type: application/json' -d @request.json";
  at("example").textContent = `curl${secret} ${form} ${location.origin}/v1/predict`;
}

function show(found, seconds) {
  const best = found.predictions[0];
  const hasClasses = Boolean(best.top_classes);
  at("winner").hidden = at("classes").hidden = !hasClasses;
  at("answer").hidden = hasClasses;
  at("took").textContent = `answered in ${Math.round(1000 * seconds)} ms`;
  at("result").hidden = false;
  if (!hasClasses) {
    at("answer").textContent = JSON.stringify(best).slice(0, 4000);
    return;
  }
  const name = (row) => best.top_names ? best.top_names[row] : `class ${best.top_classes[row]}`;
  at("winner").textContent = name(0);
  at("classes").replaceChildren(...best.top_classes.map((_, row) => {
    const share = best.top_probabilities[row];
    const line = document.createElement("li");
    const label = line.appendChild(document.createElement("span"));
    label.className = "name";
    label.textContent = name(row);
    const number = line.appendChild(document.createElement("span"));
    number.className = "share";
    number.textContent = `${(100 * share).toFixed(1)} %`;
    const bar = line.appendChild(document.createElement("meter"));
    bar.value = share;
    bar.setAttribute("aria-label", `${name(row)}: ${number.textContent}`);
    return line;
  }));
}

async function predict(file) {
  trouble("");
  at("result").hidden = true;
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
