// Classify the page's text with model.tflite, a file of `bertzoo convert RUN model.tflite --to=mediapipe`.

import { attempt, normalize, openTask, read } from "./mediapipe.js";

const MODEL = "model.tflite";
const PAUSE = 150; // milliseconds without a keystroke until the text is classified

const [text, label, scores] = ["text", "label", "scores"].map((id) => document.getElementById(id));
const percent = new Intl.NumberFormat("en", { style: "percent", minimumFractionDigits: 1 });

function scoreRow({ categoryName, score }) {
  const row = document.createElement("li");
  row.innerHTML = "<label><span></span> <span></span> <meter></meter></label>";
  const [name, share, meter] = row.firstChild.children;
  name.textContent = categoryName;
  share.textContent = percent.format(score);
  meter.value = score;
  meter.style.setProperty("--share", `${100 * score}%`);
  return row;
}

// Return the answer: of the labels that reach their thresholds the likeliest, or none; of any number of labels, all.
function answer(categories) {
  const several = head.problem_type === "multi_label_classification";
  const least = (name) => head.thresholds?.[head.labels.indexOf(name)] ?? (several ? 0.5 : 0);
  const reached = categories.filter(({ categoryName, score }) => score >= least(categoryName));
  const names = reached.slice(0, several ? undefined : 1).map(({ categoryName }) => categoryName);
  return names.join(", ") || (categories.length ? "none of these" : "");
}

function showScores(categories) {
  label.value = answer(categories);
  scores.replaceChildren(...categories.map(scoreRow));
  scores.ariaBusy = "false";
}

async function loadModel() {
  const classifier = await openTask("TextClassifier", await read(MODEL));
  const { categories } = classifier.classify("text").classifications[0];
  if (!categories[0].categoryName) throw new Error(`${MODEL} has no labels.`);
  head = JSON.parse(new TextDecoder().decode(await read(`${MODEL}.json`))).head;
  return classifier;
}

let head; // of the JSON that bertzoo writes beside the model

label.value = "Loading the model …";
const classifier = await attempt(loadModel, `Write ${MODEL} with bertzoo convert --to=mediapipe, from a classifier.`);

const classify = () =>
  attempt(() => {
    const string = normalize(text.value);
    showScores(string.trim() ? classifier.classify(string).classifications[0].categories : []);
  }, "Reload the page.");

let timer;
text.addEventListener("input", () => {
  scores.ariaBusy = "true";
  clearTimeout(timer);
  timer = setTimeout(classify, PAUSE);
});
classify();
