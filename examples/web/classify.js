// Classify the page's text with model.tflite, a file of `bertzoo convert RUN model.tflite --to=mediapipe`.

const MODEL = "model.tflite";
const MEDIAPIPE = "./node_modules/@mediapipe/tasks-text";
const PAUSE = 150; // milliseconds without a keystroke until the text is classified

const [text, label, scores, error] = ["text", "label", "scores", "error"].map((id) => document.getElementById(id));
const percent = new Intl.NumberFormat("en", { style: "percent", minimumFractionDigits: 1 });

// Change a text as an uncased BERT's tokenizer does, and MediaPipe's does not: no accents, no invisible characters.
function normalize(string) {
  const clean = string.replace(/[\t\n\r\p{Z}]/gu, " ").replace(/[\p{Cc}\p{Cf}\p{Co}\p{Cs}\ufffd]/gu, "");
  const plain = clean.normalize("NFD").replace(/\p{Mn}/gu, "");
  return Array.from(plain, (character) => character.toLowerCase()).join(""); // each alone: a final sigma stays a sigma
}

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

function showScores(categories) {
  label.value = categories.length ? categories[0].categoryName : "";
  scores.replaceChildren(...categories.map(scoreRow));
  scores.ariaBusy = "false";
}

async function attempt(action, advice) {
  try {
    return await action();
  } catch (problem) {
    showScores([]);
    error.textContent = `${problem.message ?? problem}\n${advice}`;
    error.hidden = false;
    throw problem;
  }
}

async function loadModel() {
  const files = await FilesetResolver.forTextTasks(`${MEDIAPIPE}/wasm`);
  const classifier = await TextClassifier.createFromOptions(files, { baseOptions: { modelAssetPath: MODEL } });
  const { categories } = classifier.classify("text").classifications[0];
  if (!categories[0].categoryName) throw new Error(`${MODEL} has no labels.`);
  return classifier;
}

label.value = "Loading the model …";
const { FilesetResolver, TextClassifier } = await attempt(
  () => import(`${MEDIAPIPE}/text_bundle.mjs`),
  "Install MediaPipe with npm ci.",
);
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
