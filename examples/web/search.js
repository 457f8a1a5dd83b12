// Search texts by meaning with search.tflite, a file of `bertzoo convert RUN search.tflite --to=mediapipe`.

import { attempt, normalize, openTask, read } from "./mediapipe.js";

const MODEL = "search.tflite";
const RESULTS = 5;
const PAUSE = 150; // milliseconds without a keystroke until the query is embedded
const YIELD = 50; // milliseconds of embedding after which the page may draw

const [query, results, state, texts] = ["query", "results", "state", "texts"].map((id) => document.getElementById(id));
const number = new Intl.NumberFormat("en");

// Return a hash of bytes in hexadecimal digits.
async function hash(bytes) {
  const digest = await crypto.subtle.digest("SHA-256", bytes);
  return Array.from(new Uint8Array(digest), (byte) => byte.toString(16).padStart(2, "0")).join("");
}

const embed = (text) => embedder.embed(normalize(text)).embeddings[0].floatEmbedding;

// Vectors of lines as int8, each scaled so that its largest number is 127. The browser keeps them for the next visit.
async function buildIndex(lines) {
  const bytes = new TextEncoder().encode(lines.join("\n"));
  const kept = await caches.open("indexes");
  const key = `/index/${model}/${await hash(bytes)}`;
  const found = await kept.match(key);
  if (found) return { lines, vectors: new Int8Array(await found.arrayBuffer()), kept: true };
  let [vectors, drawn] = [null, performance.now()];
  for (const [row, line] of lines.entries()) {
    const vector = embed(line);
    vectors ??= new Int8Array(lines.length * vector.length);
    const scale = 127 / Math.max(...vector.map(Math.abs), 1e-12);
    vectors.set(vector.map((value) => Math.round(scale * value)), row * vector.length);
    if (performance.now() - drawn < YIELD) continue;
    state.value = `Embedding ${number.format(row + 1)} of ${number.format(lines.length)} texts …`;
    await new Promise((resume) => setTimeout(resume));
    drawn = performance.now();
  }
  for (const other of await kept.keys()) await kept.delete(other); // the indexes of earlier texts and models
  await kept.put(key, new Response(vectors));
  return { lines, vectors, kept: false };
}

// Return the lines that are closest to a vector, with their cosines.
function nearest({ lines, vectors }, vector) {
  const size = vector.length;
  const length = Math.hypot(...vector);
  const scored = lines.map((line, row) => {
    let [dot, squares] = [0, 0];
    for (let at = 0; at < size; at++) {
      const value = vectors[row * size + at];
      dot += value * vector[at];
      squares += value * value;
    }
    return { line, cosine: dot / Math.max(length * Math.sqrt(squares), 1e-12) };
  });
  return scored.sort((one, other) => other.cosine - one.cosine).slice(0, RESULTS);
}

function resultRow({ line, cosine }) {
  const row = document.createElement("li");
  row.innerHTML = "<data></data> <span></span>";
  const [value, text] = row.children;
  value.value = cosine;
  value.textContent = cosine.toFixed(2);
  text.textContent = line;
  return row;
}

function showResults() {
  if (!index) return; // showTexts comes here when the texts are embedded
  const [string, start] = [query.value, performance.now()];
  const found = string.trim() && index.lines.length ? nearest(index, embed(string)) : [];
  const time = (performance.now() - start).toFixed(0);
  results.replaceChildren(...found.map(resultRow));
  results.ariaBusy = "false";
  const size = index.kept ? "kept from an earlier visit" : `${number.format(index.vectors.length)} bytes`;
  state.value = `${number.format(index.lines.length)} texts (index: ${size})${found.length ? `, ${time} ms` : ""}`;
}

let turn = 0;
async function showTexts() {
  const mine = ++turn; // texts that change while others are embedded
  index = null;
  const lines = texts.value.split("\n").map((line) => line.trim()).filter(Boolean);
  const built = lines.length ? await buildIndex(lines) : { lines, vectors: new Int8Array(), kept: false };
  if (mine !== turn) return;
  index = built;
  showResults();
}

function afterPause(element, action) {
  let timer;
  element.addEventListener("input", () => {
    results.ariaBusy = "true";
    clearTimeout(timer);
    timer = setTimeout(() => attempt(action, "Reload the page."), PAUSE);
  });
}

async function load() {
  if (!isSecureContext) throw new Error("A browser keeps an index for https and for localhost alone.");
  const bytes = await read(MODEL);
  model = await hash(bytes);
  const task = await openTask("TextEmbedder", bytes);
  const { length } = task.embed("text").embeddings[0].floatEmbedding ?? [];
  if (!length) throw new Error(`${MODEL} gives no vectors of float numbers.`);
  texts.value = new TextDecoder().decode(await read("texts.txt"));
  return task;
}

let model;
let index;
state.value = "Loading the model …";
const embedder = await attempt(load, `Write ${MODEL} with bertzoo convert --to=mediapipe, from a model of vectors, and copy texts.txt.`);
afterPause(query, showResults);
afterPause(texts, showTexts);
attempt(showTexts, "Reload the page.");
