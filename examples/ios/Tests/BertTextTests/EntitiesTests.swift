import XCTest

@testable import BertText

/// Tests of rows and entities on random texts with drawn logits, which examples/tokens.py wrote with bertzoo's answers.
final class EntitiesTests: XCTestCase {
    private struct Case: Decodable {
        let text: String
        let rows: [[Int32]]
        let logits: [[Float]]
        let entities: [Answer]
    }

    private struct Answer: Decodable {
        let start, end: Int
        let label, text: String
        let score: Double
    }

    private var file: String {
        let folder = URL(fileURLWithPath: #filePath).deletingLastPathComponent().deletingLastPathComponent()
        let usual = folder.deletingLastPathComponent().appendingPathComponent("App/Models/model.tflite").path
        return ProcessInfo.processInfo.environment["BERTZOO_FILE"] ?? usual
    }

    private func content(_ name: String) throws -> Data {
        try Data(contentsOf: URL(fileURLWithPath: file + name))
    }

    func testEntitiesEqualEntitiesJson() throws {
        let info = try ModelInfo(json: content(".json"), vocabulary: content(".files/vocab.txt"))
        let finder = try EntityFinder(info)
        var found = 0
        for one in try JSONDecoder().decode([Case].self, from: content(".files/entities.json")) {
            let rows = try finder.rows(one.text)
            XCTAssertEqual(one.rows, rows.windows.map(\.ids), one.text)
            let entities = finder.entities(rows, outputs: one.logits)
            XCTAssertEqual(one.entities.map(\.label), entities.map(\.label), one.text)
            let scalars = one.text.unicodeScalars  // Python counts them, too
            for (entity, answer) in zip(entities, one.entities) {
                XCTAssertEqual(answer.start, scalars.distance(from: scalars.startIndex, to: entity.range.lowerBound))
                XCTAssertEqual(answer.end, scalars.distance(from: scalars.startIndex, to: entity.range.upperBound))
                XCTAssertTrue(scalars[entity.range].elementsEqual(answer.text.unicodeScalars), one.text)
                XCTAssertEqual(answer.score, entity.score, accuracy: 1e-5)
            }
            found += entities.count
        }
        XCTAssertGreaterThan(found, 100)
    }

    func testAFileWithoutEntitiesIsAnError() throws {
        let json = String(decoding: try content(".json"), as: UTF8.self).replacingOccurrences(of: "\"entities\"", with: "\"tokens\"")
        let info = try ModelInfo(json: Data(json.utf8), vocabulary: content(".files/vocab.txt"))
        XCTAssertThrowsError(try EntityFinder(info))
    }
}
