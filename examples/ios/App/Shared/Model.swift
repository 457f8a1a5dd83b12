import BertText
import Foundation

/// A model on the phone.
protocol Model: Actor {
    nonisolated var info: ModelInfo { get }

    /// Returns each label's probability, the largest first.
    func classify(_ text: String) throws -> [(label: String, share: Float)]

    /// Returns the text's vector.
    func embed(_ text: String) throws -> [Float]

    /// Returns the entities in a text of any length.
    func entities(_ text: String) throws -> [Entity]
}

/// Returns the place of a file in the app's folder Models.
func modelFile(_ name: String) -> URL {
    Bundle.main.bundleURL.appendingPathComponent("Models").appendingPathComponent(name)
}

/// Returns what an app needs to know about a model's file.
func modelInfo(of file: URL) throws -> ModelInfo {
    try ModelInfo(
        json: Data(contentsOf: URL(fileURLWithPath: "\(file.path).json")),
        vocabulary: Data(contentsOf: URL(fileURLWithPath: "\(file.path).files/vocab.txt")))
}

/// Returns the index of Models/texts.txt: the one kept on the phone, if it is of these texts and this model.
func textIndex(of model: any Model) async throws -> TextIndex {
    let content = try String(contentsOf: modelFile("texts.txt"), encoding: .utf8)
    let texts = content.split(whereSeparator: \.isNewline).map { $0.trimmingCharacters(in: .whitespaces) }.filter { !$0.isEmpty }
    let key = "\(model.info.hash)\n\(content)"
    let folder = try FileManager.default.url(
        for: .applicationSupportDirectory, in: .userDomainMask, appropriateFor: nil, create: true)
    let file = folder.appendingPathComponent("texts.index")
    // A damaged index is built anew.
    if let kept = try? TextIndex.read(file, key: key) { return kept }
    let index = try await TextIndex(texts: texts, key: key) { try await model.embed($0) }
    try index.write(file)
    return index
}
