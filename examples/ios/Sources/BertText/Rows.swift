import Foundation

/// A sentence for the person who builds the app: what is wrong with the model's files, and what to do.
public struct ModelError: LocalizedError {
    public let errorDescription: String?

    public init(_ sentence: String) {
        errorDescription = sentence
    }
}

/// One row for a file: the signature that takes it, and its inputs by name, each as long as the signature's rows.
public struct Row {
    public let signature: String
    public let inputs: [String: [Int32]]
}

/// What an app needs to know about a file: its tokenizer, inputs, signatures and labels.
public struct ModelInfo: Sendable {
    public let tokenizer: WordPiece
    /// A hash of the file, in hexadecimal digits.
    public var hash: String { description.sha256 }
    /// Whether the file gives vectors of texts.
    public var embeds: Bool { description.head.kind == "embedding" }
    /// Whether the file tags words, which are entities.
    public var findsEntities: Bool { ["token_classification", "multi_task"].contains(description.head.kind) }
    let description: ModelDescription
    let signatures: [(name: String, length: Int)]  // the shortest first

    /// - Parameters:
    ///   - json: the content of the JSON beside the file, such as model.tflite.json.
    ///   - vocabulary: the content of vocab.txt.
    public init(json: Data, vocabulary: Data) throws {
        description = try JSONDecoder().decode(ModelDescription.self, from: json)
        tokenizer = try WordPiece(rules: description.tokenizer, vocabulary: vocabulary)
        signatures = description.signatures.map { ($0.key, $0.value.length) }.sorted { $0.length < $1.length }
    }

    /// Returns the row of one text or of a pair, with the shortest signature that holds it.
    ///
    /// Longer rows are cut to the longest signature, and keep their last [SEP].
    public func row(_ texts: String...) throws -> Row {
        try row(texts)
    }

    public func row(_ texts: [String]) throws -> Row {
        let (cls, sep) = try (special("cls"), special("sep"))
        var tokens = [cls]
        var types: [Int32] = [0]
        for (type, text) in texts.enumerated() {
            let segment = tokenizer.encode(text) + [sep]
            tokens += segment
            types += segment.map { _ in Int32(type) }
        }
        return try row(ids: tokens, types: types)
    }

    /// Returns the row of token ids, and of their types if there are two texts.
    public func row(ids: [Int32], types: [Int32]? = nil) throws -> Row {
        let (pad, sep) = try (special("pad"), special("sep"))
        var (tokens, types) = (ids, types ?? ids.map { _ in 0 })
        guard let signature = signatures.first(where: { $0.length >= tokens.count }) ?? signatures.last else {
            throw ModelError("The model's JSON names no signature. Convert the model again.")
        }
        let length = signature.length
        if tokens.count > length {
            tokens = tokens.prefix(length - 1) + [sep]
            types = Array(types.prefix(length))
        }
        let padding = length - tokens.count
        var inputs: [String: [Int32]] = [:]
        for name in description.inputs.keys {
            switch name {
            case "input_ids": inputs[name] = tokens + Array(repeating: pad, count: padding)
            case "token_type_ids": inputs[name] = types + Array(repeating: 0, count: padding)
            case "attention_mask": inputs[name] = tokens.map { _ in 1 } + Array(repeating: 0, count: padding)
            default:
                throw ModelError(
                    "The model has the input \(name), which this app does not fill. "
                        + "Convert a classifier or a model of vectors.")
            }
        }
        return Row(signature: signature.name, inputs: inputs)
    }

    /// Returns each label's probability, the largest first, for the file's output `logits`.
    public func probabilities(_ logits: [Float]) throws -> [(label: String, share: Float)] {
        let head = description.head
        let labels = head.kind == "sequence_classification" ? head.labels ?? [] : []
        guard labels.count > 1, labels.count == logits.count, let largest = logits.max() else {
            throw ModelError("The model has \(labels.count) labels and \(logits.count) outputs. Convert a classifier.")
        }
        let powers = logits.map { exp($0 - largest) }
        let sum = powers.reduce(0, +)
        let several = head.problemType == "multi_label_classification"
        let shares = several ? logits.map { 1 / (1 + exp(-$0)) } : powers.map { $0 / sum }
        return zip(labels, shares).map { ($0, $1) }.sorted { $0.share > $1.share }
    }

    /// Returns the answer of a classifier: of the labels that reach their thresholds the likeliest, or none; if a text
    /// can have several labels, all of them.
    ///
    /// - Parameter shares: probabilities by label, the largest first.
    public func answer(_ shares: [(label: String, share: Float)]) -> [String] {
        let head = description.head
        let several = head.problemType == "multi_label_classification"
        let reached = shares.filter { label, share in
            guard let thresholds = head.thresholds, let place = head.labels?.firstIndex(of: label) else {
                return !several || share >= 0.5
            }
            return share >= thresholds[place]
        }
        return (several ? reached : Array(reached.prefix(1))).map(\.label)
    }

    func special(_ name: String) throws -> Int32 {
        guard let special = description.tokenizer.specials[name] else {
            throw ModelError("The model's JSON has no special token \(name). Convert the model again.")
        }
        return special.id
    }
}

/// The keys that an app needs from the JSON beside a file.
struct ModelDescription: Decodable {
    let sha256: String
    let tokenizer: Tokenizer
    let inputs: [String: String]
    let signatures: [String: Signature]
    let head: Head
    let source: Source?

    /// What the model learnt.
    struct Source: Decodable {
        let maxLength: Int?
        let own: Columns?

        enum CodingKeys: String, CodingKey {
            case own
            case maxLength = "max_length"
        }
    }

    struct Columns: Decodable {
        let kind, aggregation: String?
        let heads: [Columns]?
    }

    struct NamedHead: Decodable {
        let name: String
        let head: Head
    }

    struct Tokenizer: Decodable {
        let kind: String
        let entries: Int
        let longestWord: Int?  // WordPiece only
        let normalization: Normalization
        let specials: [String: Special]

        enum CodingKeys: String, CodingKey {
            case kind, entries, normalization, specials
            case longestWord = "longest_word"
        }
    }

    struct Normalization: Decodable {
        let lowercase, stripAccents: Bool
        let splitCjk: Bool?  // WordPiece only

        enum CodingKeys: String, CodingKey {
            case lowercase
            case stripAccents = "strip_accents"
            case splitCjk = "split_cjk"
        }
    }

    struct Special: Decodable {
        let id: Int32
    }

    struct Signature: Decodable {
        let length: Int
    }

    struct Head: Decodable {
        let kind: String
        let labels: [String]?
        let problemType: String?
        let thresholds: [Float]?
        let heads: [NamedHead]?  // of a model with several heads

        enum CodingKeys: String, CodingKey {
            case kind, labels, thresholds, heads
            case problemType = "problem_type"
        }
    }
}
