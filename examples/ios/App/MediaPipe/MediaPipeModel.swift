import BertText
import Foundation
import MediaPipeTasksText

/// A file of `bertzoo convert --to=mediapipe`: MediaPipe tokenises, with the vocabulary and labels in the file.
///
/// MediaPipe's tokenizer keeps accents and control characters, so this class removes them first. If the model keeps
/// accents (`strip_accents` in the JSON beside the file), set stripAccents to false.
actor MediaPipeModel: Model {
    let info: ModelInfo
    private let file: URL
    private lazy var classifier = Result { try TextClassifier(modelPath: file.path) }
    private lazy var embedder = Result { try TextEmbedder(modelPath: file.path) }

    init(file: URL) throws {
        info = try modelInfo(of: file)
        self.file = file
    }

    func classify(_ text: String) throws -> [(label: String, share: Float)] {
        let result = try classifier.get().classify(text: prepare(text)).classificationResult
        let categories = result.classifications.first?.categories ?? []
        return categories.map { ($0.categoryName ?? "\($0.index)", $0.score) }.sorted { $0.share > $1.share }
    }

    func embed(_ text: String) throws -> [Float] {
        let result = try embedder.get().embed(text: prepare(text)).embeddingResult
        return result.embeddings.first?.floatEmbedding?.map(\.floatValue) ?? []
    }

    func entities(_ text: String) throws -> [Entity] {
        throw ModelError("MediaPipe's tasks find no entities. Convert the model with --to=litert.")
    }

    private func prepare(_ text: String) -> String {
        normalize(text, lowercase: true, stripAccents: true, splitChinese: true)
    }
}
