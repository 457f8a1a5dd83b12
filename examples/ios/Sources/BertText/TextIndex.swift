import Foundation

/// Texts and their vectors, to search by meaning.
///
/// A vector is int8, scaled so that its largest number is 127; cosines change by rounding alone.
public struct TextIndex: Codable, Sendable {
    public let texts: [String]
    private let key: String
    private let size: Int  // numbers of a vector
    private let vectors: Data  // one vector after the other

    /// - Parameters:
    ///   - key: what `read` must be given, such as hashes of the model and of the texts.
    ///   - embed: returns a text's vector.
    public init(texts: [String], key: String, embed: (String) async throws -> [Float]) async throws {
        var (size, vectors) = (0, Data())
        for text in texts {
            let vector = try await embed(text)
            size = vector.count
            let scale = 127 / max(vector.map(abs).max() ?? 0, 1e-12)
            vectors.append(contentsOf: vector.map { UInt8(bitPattern: Int8((scale * $0).rounded())) })
        }
        (self.texts, self.key, self.size, self.vectors) = (texts, key, size, vectors)
    }

    /// Returns the index in a file, or nil if there is no file or it was written with another key.
    public static func read(_ file: URL, key: String) throws -> TextIndex? {
        guard FileManager.default.fileExists(atPath: file.path) else { return nil }
        let index = try PropertyListDecoder().decode(TextIndex.self, from: Data(contentsOf: file))
        return index.key == key ? index : nil
    }

    public func write(_ file: URL) throws {
        let encoder = PropertyListEncoder()
        encoder.outputFormat = .binary
        try encoder.encode(self).write(to: file, options: .atomic)
    }

    /// Returns the texts with the largest cosines to a query's vector, and these cosines, the largest first.
    public func nearest(_ query: [Float], count: Int) throws -> [(text: String, cosine: Float)] {
        guard texts.isEmpty || query.count == size else {
            throw ModelError(
                "The query has \(query.count) numbers, and the index \(size). Build the index with the same model.")
        }
        let length = query.reduce(0) { $0 + $1 * $1 }.squareRoot()
        let scored = vectors.withUnsafeBytes { (bytes: UnsafeRawBufferPointer) in
            texts.enumerated().map { row, text in
                var (dot, squares) = (Float(0), Float(0))
                for at in 0..<size {
                    let value = Float(Int8(bitPattern: bytes[row * size + at]))
                    dot += value * query[at]
                    squares += value * value
                }
                return (text: text, cosine: dot / max(length * squares.squareRoot(), 1e-12))
            }
        }
        return Array(scored.sorted { $0.cosine > $1.cosine }.prefix(count))
    }
}
