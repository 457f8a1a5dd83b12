// BERT's WordPiece tokenizer, with the place of each token in the text. Places count UTF-16 units, as strings here do.

const SPACE = /[\t\n\r\p{Z}]/u;
const REMOVED = /[\p{Cc}\p{Cf}\p{Co}\p{Cs}\ufffd]/u;
const PUNCTUATION = /[\p{P}$+<=>^`|~]/u;
const CHINESE =
  /[\u4e00-\u9fff\u3400-\u4dbf\u{20000}-\u{2a6df}\u{2a700}-\u{2b73f}\u{2b740}-\u{2b81f}\u{2b920}-\u{2ceaf}\uf900-\ufaff\u{2f800}-\u{2fa1f}]/u;

export class WordPiece {
  // rules: the entry `tokenizer` of the JSON beside an exported file. vocabulary: the content of vocab.txt.
  constructor(rules, vocabulary) {
    if (rules.kind !== "wordpiece") throw new Error(`The tokenizer is ${rules.kind}. Convert a model with WordPiece.`);
    this.rules = rules;
    this.ids = new Map(vocabulary.replace(/\n$/, "").split("\n").map((token, id) => [token, id]));
    if (this.ids.size !== rules.entries) throw new Error("vocab.txt belongs to another model. Copy both files.");
  }

  // Return the tokens of a text: { id, start, end, first }; first: whether the token begins a word.
  tokens(text) {
    return this.#words(text).flatMap((word) => this.#pieces(word));
  }

  // Return the normalised characters of a text, each with the place of the character that it comes from.
  #characters(text) {
    const { lowercase, strip_accents: strip, split_cjk: split } = this.rules.normalization;
    const found = [];
    let start = 0;
    for (const character of text) {
      const end = start + character.length;
      let value = SPACE.test(character) ? " " : REMOVED.test(character) ? "" : character;
      if (split && CHINESE.test(value)) value = ` ${value} `;
      if (strip) value = value.normalize("NFD").replace(/\p{Mn}/gu, "");
      for (const one of value) for (const last of lowercase ? one.toLowerCase() : one) found.push({ last, start, end });
      start = end;
    }
    return found;
  }

  // Split at spaces, and make each punctuation mark a word.
  #words(text) {
    const words = [[]];
    for (const character of this.#characters(text)) {
      if (SPACE.test(character.last)) words.push([]);
      else if (PUNCTUATION.test(character.last)) words.push([character], []);
      else words.at(-1).push(character);
    }
    return words.filter((word) => word.length);
  }

  // Return the longest pieces from the left, or [UNK] alone if a part of the word is no piece.
  #pieces(word) {
    const token = (id, from, to) => ({ id, start: word[from].start, end: word[to - 1].end, first: from === 0 });
    const unknown = [token(this.rules.specials.unk.id, 0, word.length)];
    if (word.length > this.rules.longest_word) return unknown;
    const pieces = [];
    for (let from = 0, to; from < word.length; from = to) {
      const piece = (end) => (from ? "##" : "") + word.slice(from, end).map(({ last }) => last).join("");
      for (to = word.length; to > from && !this.ids.has(piece(to)); ) to -= 1;
      if (to === from) return unknown;
      pieces.push(token(this.ids.get(piece(to)), from, to));
    }
    return pieces;
  }
}
