import BertText
import Foundation
import TensorFlowLite

/// A file of `bertzoo convert --to=litert`: tokenises in Swift, runs the shortest signature that holds the text.
actor LiteRtClassifier: Classifier {
    private let info: ModelInfo
    private let interpreter: Interpreter

    init(file: URL) throws {
        info = try ModelInfo(
            json: Data(contentsOf: URL(fileURLWithPath: "\(file.path).json")),
            vocabulary: Data(contentsOf: URL(fileURLWithPath: "\(file.path).files/vocab.txt")))
        interpreter = try Interpreter(modelPath: file.path)
    }

    func classify(_ text: String) throws -> [(label: String, share: Float)] {
        let row = try info.row(text)
        let runner = try interpreter.signatureRunner(with: row.signature)
        try runner.invoke(with: row.inputs.mapValues { values in values.withUnsafeBytes { Data($0) } })
        let logits = try runner.output(named: "logits").data
        return try info.probabilities(logits.withUnsafeBytes { Array($0.bindMemory(to: Float.self)) })
    }
}
