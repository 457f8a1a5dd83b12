import Foundation

/// An entity.
public struct Entity {
    /// Its place in the text.
    public let range: Range<String.Index>
    public let label: String
    /// The mean probability of its words' tags.
    public let score: Double
}

/// A text as rows for a file that finds entities.
public struct EntityRows {
    /// A row: the ids of [CLS], of the tokens from `first` on and of [SEP].
    public struct Window {
        public let ids: [Int32]
        let first: Int
        let best: [Bool]  // for each token, whether it has more context here than in any other row
    }

    public let windows: [Window]
    let text: String
    let words: [Word]
}

/// A word: the index of its first token, and its place in the text's Unicode scalars.
struct Word {
    let token, start: Int
    var end: Int
}

/// From a text to rows of an exported file, and from the file's outputs to the entities in the text, as bertzoo finds
/// them (bertzoo/tasks/entities.py).
public struct EntityFinder {
    /// Name of the file's output with the tags' logits.
    public let output: String
    private let info: ModelInfo
    private let tags: [Tag]
    private let longest: Int

    public init(_ info: ModelInfo) throws {
        let (head, source) = (info.description.head, info.description.source)
        let heads = head.heads?.map(\.head) ?? [head]
        let place = heads.firstIndex { $0.kind == "token_classification" }
        let own = head.heads == nil ? source?.own : place.flatMap { source?.own?.heads?[$0] }
        guard let place, let labels = heads[place].labels, let length = info.signatures.last?.length,
            own?.kind == "entities", own?.aggregation ?? "first" == "first"
        else {
            throw ModelError("The model finds no entities by first tokens. Train it with own.kind = \"entities\".")
        }
        self.info = info
        output = head.heads.map { "\($0[place].name)_logits" } ?? "logits"
        tags = labels.map { Tag(prefix: $0.first ?? "O", label: String($0.dropFirst(2))) }
        longest = min(length, source?.maxLength ?? length)
    }

    /// Returns a text as overlapping rows.
    public func rows(_ text: String) throws -> EntityRows {
        let tokens = info.tokenizer.tokens(text)
        let (cls, sep) = try (info.special("cls"), info.special("sep"))
        let rows = windows(tokens.count, room: longest - 2).map { first, best in
            EntityRows.Window(ids: [cls] + tokens[first..<first + best.count].map(\.id) + [sep], first: first, best: best)
        }
        return EntityRows(windows: rows, text: text, words: findWords(Array(text.unicodeScalars), tokens))
    }

    /// Returns the entities of a text.
    ///
    /// - Parameter outputs: for each of its rows, the file's `output`: the logits of each position, one array after the
    ///   other.
    public func entities(_ rows: EntityRows, outputs: [[Float]]) -> [Entity] {
        var found: [Int: [Double]] = [:]  // probabilities of the tags, by token
        for (window, logits) in zip(rows.windows, outputs) {
            for (at, best) in window.best.enumerated() where best {
                found[window.first + at] = softmax(logits[(1 + at) * tags.count..<(2 + at) * tags.count])
            }
        }
        let chances = rows.words.map { found[$0.token] ?? [] }
        let path = bestPath(chances, tags)
        let scalars = rows.text.unicodeScalars
        return runs(path.map { tags[$0] }).compactMap { run in
            let (start, end) = (rows.words[run.lowerBound].start, rows.words[run.upperBound - 1].end)
            guard start < end else { return nil }
            let first = scalars.index(scalars.startIndex, offsetBy: start)
            let score = run.map { chances[$0][path[$0]] }.reduce(0, +) / Double(run.count)
            return Entity(
                range: first..<scalars.index(first, offsetBy: end - start), label: tags[path[run.lowerBound]].label,
                score: score)
        }
    }
}

private struct Tag {
    let prefix: Character
    let label: String

    func mayPrecede(_ next: Tag, closed: Bool) -> Bool {
        let open = "BI".contains(prefix)
        return "IE".contains(next.prefix) ? open && label == next.label : !(closed && open)
    }
}

/// Returns overlapping windows over `count` tokens.
private func windows(_ count: Int, room: Int) -> [(first: Int, best: [Bool])] {
    var parts: [(first: Int, size: Int)] = []
    var owner = Array(repeating: 0, count: count)
    var context = Array(repeating: -1.0, count: count)
    let step = max(1, room - room / 4)
    repeat {
        let first = parts.last.map { $0.first + min($0.size, step) } ?? 0
        let size = min(count - first, room)
        for at in 0..<size {
            let here = Double(min(at, size - 1 - at)) + 0.01 * Double(size)
            if here > context[first + at] { (owner[first + at], context[first + at]) = (parts.count, here) }
        }
        parts.append((first, size))
    } while parts[parts.count - 1].first + parts[parts.count - 1].size < count
    return parts.enumerated().map { row, part in
        (part.first, owner[part.first..<part.first + part.size].map { $0 == row })
    }
}

/// Returns the words of a text. One has the combining marks behind it, which tokens leave out.
private func findWords(_ text: [Unicode.Scalar], _ tokens: [Token]) -> [Word] {
    var words: [Word] = []
    for (index, token) in tokens.enumerated() {
        if token.first || index == 0 { words.append(Word(token: index, start: token.start, end: token.end)) }
        words[words.count - 1].end = token.end
    }
    let limits = words.dropFirst().map(\.start) + [text.count]
    for index in words.indices {
        while words[index].end < limits[index], isMark(text[words[index].end]) { words[index].end += 1 }
    }
    return words
}

private func softmax(_ logits: ArraySlice<Float>) -> [Double] {
    let largest = logits.max() ?? 0
    let powers = logits.map { exp(Double($0) - Double(largest)) }
    let sum = powers.reduce(0, +)
    return powers.map { $0 / sum }
}

/// Returns the most probable tags of words that follow the scheme (Viterbi).
///
/// - Parameter chances: of each word's tags.
private func bestPath(_ chances: [[Double]], _ tags: [Tag]) -> [Int] {
    let closed = tags.contains { "ES".contains($0.prefix) }
    let outside = tags.firstIndex { $0.prefix == "O" } ?? 0
    var total = tags.indices.map { $0 == outside ? 0 : -Double.infinity }  // O stands before the first word
    func route(_ from: Int, _ tag: Int) -> Double {
        tags[from].mayPrecede(tags[tag], closed: closed) ? total[from] : -Double.infinity
    }
    func best(_ tag: Int) -> Int {
        tags.indices.dropFirst().reduce(0) { route($1, tag) > route($0, tag) ? $1 : $0 }
    }
    let back = chances.map { word in
        let from = tags.indices.map(best)
        total = tags.indices.map { route(from[$0], $0) + log(max(word[$0], Double.leastNormalMagnitude)) }
        return from
    }
    var tag = best(outside)  // and behind the last
    var path: [Int] = []
    for from in back.reversed() {
        path.append(tag)
        tag = from[tag]
    }
    return path.reversed()
}

/// Returns the words of every entity.
private func runs(_ tags: [Tag]) -> [Range<Int>] {
    var found: [Range<Int>] = []
    var start: Int?
    for at in 0...tags.count {
        let tag = at < tags.count ? tags[at] : Tag(prefix: "O", label: "")
        if let first = start {
            let before = tags[at - 1]
            if "IE".contains(tag.prefix), tag.label == before.label, !"ES".contains(before.prefix) { continue }
            found.append(first..<at)
        }
        start = tag.prefix == "O" ? nil : at
    }
    return found
}

private func isMark(_ scalar: Unicode.Scalar) -> Bool {
    [.nonspacingMark, .spacingMark, .enclosingMark].contains(scalar.properties.generalCategory)
}
