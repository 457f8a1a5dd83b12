// Highlight the entities in the page's text by entities.tflite, a file of `bertzoo convert RUN entities.tflite --to=litert`.

import { EntityFinder } from "./entities.js";
import { attempt, read } from "./mediapipe.js";

const MODEL = "entities.tflite";
const LITERT = "./node_modules/@litertjs/core";
const PAUSE = 150; // milliseconds without a keystroke until the text is read

const [text, marks, state, list] = ["text", "marks", "state", "found"].map((id) => document.getElementById(id));
const percent = new Intl.NumberFormat("en", { style: "percent" });

const element = (name, content, data = {}) => {
  const made = Object.assign(document.createElement(name), { textContent: content });
  return Object.assign(made.dataset, data) && made;
};

async function loadModel() {
  const litert = await attempt(() => import(`${LITERT}/dist/index.js`), "Install LiteRT with npm ci.");
  const words = await Promise.all([read(`${MODEL}.json`), read(`${MODEL}.files/vocab.txt`)]);
  const [description, vocabulary] = words.map((bytes) => new TextDecoder().decode(bytes));
  const finder = new EntityFinder(JSON.parse(description), vocabulary);
  await litert.loadLiteRt(`${LITERT}/wasm/`);
  const model = await litert.loadAndCompile(await read(MODEL), { accelerator: "wasm" });
  return { finder, model, Tensor: litert.Tensor };
}

// Return the logits of each position of a row, one array after the other.
async function logits({ finder, model, Tensor }, row) {
  const { signature, inputs } = finder.fill(row);
  const tensors = Object.entries(inputs).map(([name, values]) => [name, new Tensor(values, [1, values.length])]);
  const outputs = await model.run(signature, Object.fromEntries(tensors));
  const found = outputs[finder.output].toTypedArray().slice();
  for (const tensor of [...tensors.map(([, one]) => one), ...Object.values(outputs)]) tensor.delete();
  return found;
}

function show(string, entities) {
  const parts = entities.flatMap(({ start, end, label }, index) => [
    string.slice(entities[index - 1]?.end ?? 0, start),
    element("mark", string.slice(start, end), { label }),
  ]);
  marks.replaceChildren(...parts, `${string.slice(entities.at(-1)?.end ?? 0)}\n`);
  list.replaceChildren(
    ...entities.map(({ label, score, text: words }) => {
      const row = element("li", "");
      row.append(element("b", label), " ", element("span", words), " ", element("data", percent.format(score)));
      return row;
    }),
  );
  list.ariaBusy = "false";
  state.value = entities.length ? "" : "No entity.";
}

state.value = "Loading the model …";
const file = await attempt(loadModel, `Write ${MODEL} with bertzoo convert --to=litert, from a model that finds entities.`);

let asked = 0;
const find = () =>
  attempt(async () => {
    const [string, number] = [text.value, ++asked];
    const parts = file.finder.rows(string);
    const outputs = [];
    for (const row of parts.rows) outputs.push(await logits(file, row));
    if (number === asked) show(string, file.finder.entities(parts, outputs));
  }, "Reload the page.");

let timer;
text.addEventListener("input", () => {
  list.ariaBusy = "true";
  marks.replaceChildren();
  clearTimeout(timer);
  timer = setTimeout(find, PAUSE);
});
text.addEventListener("scroll", () => (marks.scrollTop = text.scrollTop));
find();
