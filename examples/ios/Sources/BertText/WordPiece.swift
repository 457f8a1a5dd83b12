import Foundation

/// A token, and its place in the text's Unicode scalars.
struct Token {
    let id: Int32
    let start, end: Int
    /// Whether it begins a word.
    let first: Bool
}

/// A normalised character, and the place in the text of the one that it comes from.
private struct Normal {
    let scalar: Unicode.Scalar
    let start: Int
}

/// BERT's WordPiece tokenizer.
///
/// It works on Unicode scalars, because Swift's strings take "é" and "e" with an accent for the same text.
public struct WordPiece: Sendable {
    private let ids: [[Unicode.Scalar]: Int32]
    private let unknown: Int32
    private let longestWord: Int  // in scalars; longer words become [UNK]
    private let lowercase, stripAccents, splitChinese: Bool

    /// - Parameters:
    ///   - rules: the entry `tokenizer` of the JSON beside an exported file.
    ///   - vocabulary: the content of vocab.txt.
    init(rules: ModelDescription.Tokenizer, vocabulary: Data) throws {
        guard rules.kind == "wordpiece", let longestWord = rules.longestWord, let unknown = rules.specials["unk"],
            let splitChinese = rules.normalization.splitCjk
        else {
            throw ModelError("The model has a \(rules.kind) tokenizer. Convert a model with a WordPiece vocabulary.")
        }
        var ids: [[Unicode.Scalar]: Int32] = [:]
        for (id, token) in vocabulary.split(separator: UInt8(ascii: "\n")).enumerated() {
            ids[Array(String(decoding: token, as: UTF8.self).unicodeScalars)] = Int32(id)
        }
        guard ids.count == rules.entries else {
            throw ModelError(
                "vocab.txt has \(ids.count) entries, but the model's tokenizer \(rules.entries). Copy both files.")
        }
        self.ids = ids
        self.unknown = unknown.id
        self.longestWord = longestWord
        self.splitChinese = splitChinese
        lowercase = rules.normalization.lowercase
        stripAccents = rules.normalization.stripAccents
    }

    /// Returns the ids of a text, without special tokens.
    public func encode(_ text: String) -> [Int32] {
        tokens(text).map(\.id)
    }

    /// Returns the tokens of a text with their places, without special tokens.
    func tokens(_ text: String) -> [Token] {
        let normal = normalized(text, lowercase: lowercase, stripAccents: stripAccents, splitChinese: splitChinese)
        return words(normal).flatMap(pieces)
    }

    /// Splits at spaces, and makes each punctuation mark a word.
    private func words(_ text: [Normal]) -> [[Normal]] {
        var words: [[Normal]] = [[]]
        for one in text {
            if one.scalar.properties.isWhitespace {
                words.append([])
            } else if isPunctuation(one.scalar) {
                words += [[one], []]
            } else {
                words[words.count - 1].append(one)
            }
        }
        return words.filter { !$0.isEmpty }
    }

    /// Returns the longest pieces from the left, or [UNK] alone if a part of the word is no piece.
    private func pieces(_ word: [Normal]) -> [Token] {
        func token(_ id: Int32, _ from: Int, _ to: Int) -> Token {
            Token(id: id, start: word[from].start, end: word[to - 1].start + 1, first: from == 0)
        }
        let unknown = [token(unknown, 0, word.count)]
        guard word.count <= longestWord else { return unknown }
        var pieces: [Token] = []
        var start = 0
        while start < word.count {
            var piece: [Unicode.Scalar] = (start == 0 ? [] : ["#", "#"]) + word[start...].map(\.scalar)
            var end = word.count
            while end > start, ids[piece] == nil {
                piece.removeLast()
                end -= 1
            }
            guard end > start, let id = ids[piece] else { return unknown }
            pieces.append(token(id, start, end))
            start = end
        }
        return pieces
    }
}

/// Returns a text as BERT's tokenizer changes it before it cuts words: no control characters, one kind of space.
public func normalize(_ text: String, lowercase: Bool, stripAccents: Bool, splitChinese: Bool) -> String {
    let normal = normalized(text, lowercase: lowercase, stripAccents: stripAccents, splitChinese: splitChinese)
    return String(String.UnicodeScalarView(normal.map(\.scalar)))
}

private func normalized(_ text: String, lowercase: Bool, stripAccents: Bool, splitChinese: Bool) -> [Normal] {
    var normal: [Normal] = []
    for (start, scalar) in text.unicodeScalars.enumerated() where !isRemoved(scalar) {
        var clean = String.UnicodeScalarView([scalar])
        if scalar.properties.isWhitespace {
            clean = String.UnicodeScalarView([" "])
        } else if splitChinese && isChinese(scalar) {
            clean = String.UnicodeScalarView([" ", scalar, " "])
        }
        if stripAccents {
            let decomposed = String(clean).decomposedStringWithCanonicalMapping.unicodeScalars
            clean = String.UnicodeScalarView(decomposed.filter { $0.properties.generalCategory != .nonspacingMark })
        }
        for one in clean {
            // Each scalar alone, because lowercased() may turn a capital sigma at a word's end into another letter.
            let last = lowercase ? Array(one.properties.lowercaseMapping.unicodeScalars) : [one]
            normal += last.map { Normal(scalar: $0, start: start) }
        }
    }
    return normal
}

/// Control, format and private-use characters and the replacement character, except tabs and line breaks.
private func isRemoved(_ scalar: Unicode.Scalar) -> Bool {
    switch scalar.properties.generalCategory {
    case .control: return !["\t", "\n", "\r"].contains(scalar)
    case .format, .privateUse: return true
    default: return scalar == "\u{FFFD}"
    }
}

private func isChinese(_ scalar: Unicode.Scalar) -> Bool {
    switch scalar.value {
    case 0x4E00...0x9FFF, 0x3400...0x4DBF, 0x20000...0x2A6DF, 0x2A700...0x2B73F, 0x2B740...0x2B81F, 0x2B920...0x2CEAF,
        0xF900...0xFAFF, 0x2F800...0x2FA1F:
        return true
    default: return false
    }
}

private func isPunctuation(_ scalar: Unicode.Scalar) -> Bool {
    switch scalar.properties.generalCategory {
    case .connectorPunctuation, .dashPunctuation, .openPunctuation, .closePunctuation, .initialPunctuation,
        .finalPunctuation, .otherPunctuation:
        return true
    default: return "$+<=>^`|~".unicodeScalars.contains(scalar)
    }
}
