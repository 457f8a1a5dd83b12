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
    private func info(problem: String) throws -> ModelInfo {
        let json = """
            {"tokenizer": {"kind": "wordpiece", "entries": 1, "longest_word": 100, "specials": {"unk": {"id": 0}},
            "normalization": {"lowercase": true, "strip_accents": true, "split_cjk": true}},
            "inputs": {}, "signatures": {}, "head": {"kind": "sequence_classification", "labels": ["no", "yes"],
            "problem_type": \(problem)}}
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

    func testAnotherNumberOfOutputsIsAnError() throws {
        XCTAssertThrowsError(try info(problem: "null").probabilities([1]))
    }
}
