// What both pages need: MediaPipe with a model, texts as the model's tokenizer expects them, errors in the page.

const MEDIAPIPE = "./node_modules/@mediapipe/tasks-text";
const error = document.getElementById("error");

// Change a text as an uncased BERT's tokenizer does, and MediaPipe's does not: no accents, no invisible characters.
export function normalize(string) {
  const clean = string.replace(/[\t\n\r\p{Z}]/gu, " ").replace(/[\p{Cc}\p{Cf}\p{Co}\p{Cs}\ufffd]/gu, "");
  const plain = clean.normalize("NFD").replace(/\p{Mn}/gu, "");
  return Array.from(plain, (character) => character.toLowerCase()).join(""); // each alone: a final sigma stays a sigma
}

// Return the result of an action; if it fails, show the problem and the advice in the page.
export async function attempt(action, advice) {
  try {
    return await action();
  } catch (problem) {
    document.querySelectorAll("output").forEach((output) => (output.value = ""));
    error.textContent = `${problem.message ?? problem}\n${advice}`;
    error.hidden = false;
    throw problem;
  }
}

// Return one of MediaPipe's tasks, such as TextClassifier, with the model in `buffer`.
export async function openTask(name, buffer) {
  const mediapipe = await attempt(() => import(`${MEDIAPIPE}/text_bundle.mjs`), "Install MediaPipe with npm ci.");
  const files = await mediapipe.FilesetResolver.forTextTasks(`${MEDIAPIPE}/wasm`);
  return mediapipe[name].createFromOptions(files, { baseOptions: { modelAssetBuffer: buffer } });
}

// Return the bytes of a file on this server.
export async function read(file) {
  const response = await fetch(file);
  if (!response.ok) throw new Error(`${file}: ${response.status} ${response.statusText}`);
  return new Uint8Array(await response.arrayBuffer());
}
