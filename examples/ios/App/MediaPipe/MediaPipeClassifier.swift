import BertText
import Foundation
import MediaPipeTasksText

/// A file of `bertzoo convert --to=mediapipe`: MediaPipe tokenises, with the vocabulary and labels in the file.
///
/// MediaPipe's tokenizer keeps accents and control characters, so this class removes them first. If the model keeps
/// accents (`strip_accents` in the JSON beside the file), set stripAccents to false.
actor MediaPipeClassifier: Classifier {
    private let task: TextClassifier

    init(file: URL) throws {
        task = try TextClassifier(modelPath: file.path)
    }

    func classify(_ text: String) throws -> [(label: String, share: Float)] {
        let prepared = normalize(text, lowercase: true, stripAccents: true, splitChinese: true)
        let categories = try task.classify(text: prepared).classificationResult.classifications.first?.categories ?? []
        return categories.map { ($0.categoryName ?? "\($0.index)", $0.score) }.sorted { $0.share > $1.share }
    }
}
