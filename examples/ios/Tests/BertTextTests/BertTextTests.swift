import XCTest

@testable import BertText

/// Tests of everything between a text and a row, on the files that bertzoo wrote; they need no phone.
final class BertTextTests: XCTestCase {
    private struct Golden: Decodable {
        let texts: [String]
        let signature: String
        let inputs: [String: [Int32]]
    }

    private struct Tokens: Decodable {
        let text: String
        let ids: [Int32]
    }

    private var file: String {
        let folder = URL(fileURLWithPath: #filePath).deletingLastPathComponent().deletingLastPathComponent()
        let usual = folder.deletingLastPathComponent().appendingPathComponent("App/Models/model.tflite").path
        return ProcessInfo.processInfo.environment["BERTZOO_FILE"] ?? usual
    }

    private func companion(_ name: String) throws -> Data {
        try Data(contentsOf: URL(fileURLWithPath: "\(file).files/\(name)"))
    }

    private func info() throws -> ModelInfo {
        try ModelInfo(json: Data(contentsOf: URL(fileURLWithPath: "\(file).json")), vocabulary: companion("vocab.txt"))
    }

    func testRowsEqualGoldenJson() throws {
        let info = try info()
        let rows = try JSONDecoder().decode([Golden].self, from: companion("golden.json"))
        XCTAssertFalse(rows.isEmpty)
        for golden in rows {
            let row = try info.row(golden.texts)
            XCTAssertEqual(golden.signature, row.signature, "\(golden.texts)")
            XCTAssertEqual(golden.inputs, row.inputs, "\(golden.texts)")
        }
    }

    func testTokensOfUnusualTextsEqualTokensJson() throws {
        let tokenizer = try info().tokenizer
        let tokens = try JSONDecoder().decode([Tokens].self, from: companion("tokens.json"))
        XCTAssertFalse(tokens.isEmpty)
        let different = tokens.filter { tokenizer.encode($0.text) != $0.ids }
        XCTAssertEqual(0, different.count, "of \(tokens.count) texts: \(different.prefix(5))")
    }

    func testALongTextFillsTheLongestSignatureAndKeepsItsLastToken() throws {
        let info = try info()
        let short = try XCTUnwrap(info.row("a").inputs["input_ids"])
        let long = try info.row(String(repeating: "a ", count: 10_000)).inputs
        let ids = try XCTUnwrap(long["input_ids"])
        XCTAssertGreaterThanOrEqual(ids.count, short.count)
        XCTAssertEqual(short[2], ids.last)  // [CLS] a [SEP]
        XCTAssertEqual(long["attention_mask"], Array(repeating: 1, count: ids.count))
    }
}

/// Tests of the probabilities, with JSONs of two labels.
final class ProbabilitiesTests: XCTestCase {
    private func info(problem: String, thresholds: String = "null") throws -> ModelInfo {
        let json = """
            {"sha256": "0", "tokenizer": {"kind": "wordpiece", "entries": 1, "longest_word": 100, "specials": {"unk": {"id": 0}},
            "normalization": {"lowercase": true, "strip_accents": true, "split_cjk": true}},
            "inputs": {}, "signatures": {}, "head": {"kind": "sequence_classification", "labels": ["no", "yes"],
            "problem_type": \(problem), "thresholds": \(thresholds)}}
            """
        return try ModelInfo(json: Data(json.utf8), vocabulary: Data("[UNK]\n".utf8))
    }

    func testOneLabelIsChosenBySoftmaxTheLargestFirst() throws {
        let shares = try info(problem: "null").probabilities([1000, 1001])
        XCTAssertEqual(["yes", "no"], shares.map(\.label))
        XCTAssertEqual(0.7310586, shares[0].share, accuracy: 1e-6)
        XCTAssertEqual(1, shares[0].share + shares[1].share, accuracy: 1e-6)
    }

    func testSeveralLabelsHaveASigmoidEach() throws {
        let shares = try info(problem: "\"multi_label_classification\"").probabilities([0, 1])
        XCTAssertEqual(["yes", "no"], shares.map(\.label))
        XCTAssertEqual(0.7310586, shares[0].share, accuracy: 1e-6)
        XCTAssertEqual(0.5, shares[1].share, accuracy: 1e-6)
    }

    func testTheAnswerReachesItsThreshold() throws {
        let shares: [(label: String, share: Float)] = [("yes", 0.6), ("no", 0.4)]
        let several = "\"multi_label_classification\""
        let cases: [(String, String, [String])] = [
            ("null", "null", ["yes"]), ("null", "[0.3, 0.7]", ["no"]), ("null", "[0.7, 0.7]", []),
            (several, "null", ["yes"]), (several, "[0.4, 0.4]", ["yes", "no"]),
        ]
        for (problem, thresholds, expected) in cases {
            XCTAssertEqual(expected, try info(problem: problem, thresholds: thresholds).answer(shares))
        }
    }

    func testAnotherNumberOfOutputsIsAnError() throws {
        XCTAssertThrowsError(try info(problem: "null").probabilities([1]))
    }
}

/// Tests of the index with drawn vectors.
final class TextIndexTests: XCTestCase {
    private let texts = (0..<50).map { "text \($0), größer" }
    private var vectors: [String: [Float]] = [:]

    override func setUp() {
        vectors = Dictionary(uniqueKeysWithValues: texts.map { ($0, vector()) })
    }

    private func vector() -> [Float] {
        (0..<64).map { _ in Float.random(in: -1...1) }
    }

    private func index(_ texts: [String]) async throws -> TextIndex {
        try await TextIndex(texts: texts, key: "key") { [vectors] in vectors[$0]! }
    }

    private func cosine(_ one: [Float], _ other: [Float]) -> Float {
        func dot(_ one: [Float], _ other: [Float]) -> Float { zip(one, other).map(*).reduce(0, +) }
        return dot(one, other) / (dot(one, one) * dot(other, other)).squareRoot()
    }

    func testNearestReturnsTheLargestCosinesAndATextIsClosestToItself() async throws {
        let (index, query) = (try await index(texts), vector())
        let expected = texts.map { cosine(query, vectors[$0]!) }.sorted(by: >)
        let found = try index.nearest(query, count: 7)
        XCTAssertEqual(7, found.count)
        for (at, (text, value)) in found.enumerated() {
            XCTAssertEqual(cosine(query, vectors[text]!), value, accuracy: 0.01)
            XCTAssertEqual(expected[at], value, accuracy: 0.01)
        }
        for (text, vector) in vectors {
            XCTAssertEqual([text], try index.nearest(vector, count: 1).map(\.text))
        }
    }

    func testAWrittenIndexIsReadWithItsKeyAlone() async throws {
        let file = FileManager.default.temporaryDirectory.appendingPathComponent("\(UUID().uuidString).index")
        let (index, query) = (try await index(texts), vector())
        try index.write(file)
        let read = try XCTUnwrap(TextIndex.read(file, key: "key"))
        XCTAssertEqual(try index.nearest(query, count: 50).map(\.text), try read.nearest(query, count: 50).map(\.text))
        XCTAssertNil(try TextIndex.read(file, key: "other key"))
        try FileManager.default.removeItem(at: file)
        XCTAssertNil(try TextIndex.read(file, key: "key"))
    }

    func testNoTextsHaveNoResults() async throws {
        let found = try await index([]).nearest(vector(), count: 5)
        XCTAssertTrue(found.isEmpty)
    }

    func testAQueryOfAnotherSizeIsAnError() async throws {
        let index = try await index(texts)
        XCTAssertThrowsError(try index.nearest([1, 2, 3], count: 5))
    }
}
