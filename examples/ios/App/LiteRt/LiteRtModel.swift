import BertText
import Foundation
import TensorFlowLite

/// A file of `bertzoo convert --to=litert`: tokenises in Swift, runs the shortest signature that holds the text.
actor LiteRtModel: Model {
    let info: ModelInfo
    private let interpreter: Interpreter

    init(file: URL) throws {
        info = try modelInfo(of: file)
        interpreter = try Interpreter(modelPath: file.path)
    }

    func classify(_ text: String) throws -> [(label: String, share: Float)] {
        try info.probabilities(run(info.row(text), output: "logits"))
    }

    func embed(_ text: String) throws -> [Float] {
        try run(info.row(text), output: "embedding")
    }

    func entities(_ text: String) throws -> [Entity] {
        let finder = try EntityFinder(info)
        let rows = try finder.rows(text)
        let outputs = try rows.windows.map { try run(info.row(ids: $0.ids), output: finder.output) }
        return finder.entities(rows, outputs: outputs)
    }

    private func run(_ row: Row, output: String) throws -> [Float] {
        let runner = try interpreter.signatureRunner(with: row.signature)
        try runner.invoke(with: row.inputs.mapValues { values in values.withUnsafeBytes { Data($0) } })
        return try runner.output(named: output).data.withUnsafeBytes { Array($0.bindMemory(to: Float.self)) }
    }
}
