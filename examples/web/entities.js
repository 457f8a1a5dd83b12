// From a text to the rows of an exported file, and from the file's outputs to the entities in the text, as bertzoo finds
// them (bertzoo/tasks/entities.py). Places count UTF-16 units, so `text.slice(start, end)` is the entity.

import { WordPiece } from "./wordpiece.js";

const LEAST = 2.2250738585072014e-308; // whose logarithm is finite

export class EntityFinder {
  // description: the JSON beside an exported file, parsed. vocabulary: the content of vocab.txt.
  constructor(description, vocabulary) {
    const { head, source, tokenizer, inputs, signatures } = description;
    const heads = head.heads ?? [{ head }]; // of a model with several heads, the one that finds entities
    const place = heads.findIndex((one) => one.head.kind === "token_classification");
    const own = source.own?.heads?.length ? source.own.heads[place] : source.own;
    if (place < 0 || own?.kind !== "entities" || (own.aggregation ?? "first") !== "first") {
      throw new Error('The model finds no entities by first tokens. Train it with own.kind = "entities".');
    }
    this.output = heads[place].name ? `${heads[place].name}_logits` : "logits";
    this.tags = heads[place].head.labels.map((label) => {
      const [, prefix, name] = /^(?:O|([BIES])-(.*))$/s.exec(label);
      return { prefix: prefix ?? "O", label: name ?? "" };
    });
    this.specials = tokenizer.specials;
    this.tokenizer = new WordPiece(tokenizer, vocabulary);
    this.inputs = Object.keys(inputs);
    this.signatures = Object.entries(signatures).sort(([, one], [, other]) => one.length - other.length);
    this.longest = Math.min(source.max_length ?? Infinity, this.signatures.at(-1)[1].length);
  }

  // Return a text's tokens, words and rows: { ids, first, best } for [CLS], the tokens from `first` on and [SEP]; best:
  // for each of these tokens, whether it has more context here than in any other row.
  rows(text) {
    const tokens = this.tokenizer.tokens(text);
    const [cls, sep] = ["cls", "sep"].map((name) => this.specials[name].id);
    const rows = windows(tokens.length, this.longest - 2).map(({ first, best }) => {
      return { ids: [cls, ...tokens.slice(first, first + best.length).map(({ id }) => id), sep], first, best };
    });
    return { text, tokens, words: findWords(text, tokens), rows };
  }

  // Return the shortest signature that holds a row, and its inputs by name.
  fill({ ids }) {
    const [signature, { length }] = this.signatures.find(([, { length }]) => length >= ids.length);
    const values = {
      input_ids: (at) => ids[at] ?? this.specials.pad.id,
      token_type_ids: () => 0,
      attention_mask: (at) => Number(at < ids.length),
    };
    const inputs = this.inputs.map((name) => [name, Int32Array.from({ length }, (_, at) => values[name](at))]);
    return { signature, inputs: Object.fromEntries(inputs) };
  }

  // Return the entities: { start, end, label, score, text }. parts: what `rows` returns. outputs: for each row, the
  // logits of each position, one array after the other.
  entities({ text, words, rows }, outputs) {
    const size = this.tags.length;
    const tokens = [];
    rows.forEach(({ first, best }, row) =>
      best.forEach((is, at) => {
        if (is) tokens[first + at] = softmax(outputs[row].slice((1 + at) * size, (2 + at) * size));
      }),
    );
    const chances = words.map(({ token }) => tokens[token]);
    const path = bestPath(chances, this.tags);
    const found = [];
    for (const [first, last] of runs(path.map((tag) => this.tags[tag]))) {
      const [start, end] = [words[first].start, words[last].end];
      const sure = path.slice(first, last + 1).map((tag, at) => chances[first + at][tag]);
      const score = sure.reduce((sum, chance) => sum + chance, 0) / sure.length;
      if (start < end) found.push({ start, end, label: this.tags[path[first]].label, score, text: text.slice(start, end) });
    }
    return found;
  }
}

// Return overlapping windows over `count` tokens: { first, best }.
function windows(count, room) {
  const found = [];
  const owner = new Array(count).fill(0);
  const context = new Array(count).fill(-1);
  const step = Math.max(1, room - Math.floor(room / 4));
  for (let first = 0, size = 0; !found.length || first + size < count; ) {
    if (found.length) first += Math.min(size, step);
    size = Math.min(count - first, room);
    for (let at = 0; at < size; at++) {
      const here = Math.min(at, size - 1 - at) + 0.01 * size;
      if (here > context[first + at]) [owner[first + at], context[first + at]] = [found.length, here];
    }
    found.push({ first, size });
  }
  return found.map(({ first, size }, row) => ({ first, best: owner.slice(first, first + size).map((one) => one === row) }));
}

// Return the words of a text: { token, start, end }; token: the index of the first. A word has the combining marks behind
// it, which tokens leave out.
function findWords(text, tokens) {
  const words = [];
  tokens.forEach(({ start, end, first }, token) => {
    if (first || !token) words.push({ token, start, end });
    words.at(-1).end = end;
  });
  const limits = words.slice(1).map(({ start }) => start);
  words.forEach((word, index) => {
    word.end += /^\p{M}*/u.exec(text.slice(word.end, limits[index] ?? text.length))[0].length;
  });
  return words;
}

function softmax(logits) {
  const largest = Math.max(...logits);
  const powers = Array.from(logits, (logit) => Math.exp(logit - largest));
  const sum = powers.reduce((total, power) => total + power, 0);
  return powers.map((power) => power / sum);
}

// Return the most probable tags of words that follow the scheme (Viterbi). chances: of each word's tags.
function bestPath(chances, tags) {
  const closed = tags.some(({ prefix }) => prefix === "E" || prefix === "S");
  const open = ({ prefix }) => prefix === "B" || prefix === "I";
  const legal = tags.map((one) =>
    tags.map((next) => ("IE".includes(next.prefix) ? open(one) && one.label === next.label : !(closed && open(one)))),
  );
  const outside = tags.findIndex(({ prefix }) => prefix === "O");
  let total = tags.map((_, tag) => (tag === outside ? 0 : -Infinity)); // O stands before the first word
  const step = (tag) => {
    let best = 0;
    const route = (from) => (legal[from][tag] ? total[from] : -Infinity);
    for (let from = 1; from < tags.length; from++) if (route(from) > route(best)) best = from;
    return [best, route(best)];
  };
  const back = chances.map((word) => {
    const steps = tags.map((_, tag) => step(tag));
    total = steps.map(([, route], tag) => route + Math.log(Math.max(word[tag], LEAST)));
    return steps.map(([from]) => from);
  });
  let [tag] = step(outside); // and behind the last
  const path = [];
  for (const steps of back.reverse()) {
    path.unshift(tag);
    tag = steps[tag];
  }
  return path;
}

// Yield the first and the last word of every entity.
function* runs(tags) {
  let start = -1;
  for (let at = 0; at <= tags.length; at++) {
    const { prefix, label } = tags[at] ?? { prefix: "O", label: "" };
    const before = tags[at - 1];
    const continues = start >= 0 && "IE".includes(prefix) && label === before.label && !"ES".includes(before.prefix);
    if (start >= 0 && !continues) yield [start, at - 1];
    if (!continues) start = prefix === "O" ? -1 : at;
  }
}
