import BertText
import SwiftUI

/// One screen: a text, a button, and the answer: the label and all probabilities, the entities in the text, or, from a
/// model of vectors, the lines of texts.txt that are closest to the text.
struct ModelScreen: View {
    let model: Result<any Model, any Error>
    @State private var index: TextIndex?
    @State private var text = ""
    @State private var result = ""

    var body: some View {
        Form {
            TextField("Text", text: $text, axis: .vertical)
            Button("Answer") { Task { await answer() } }
            Text(result)
        }
    }

    private func answer() async {
        do {
            let model = try model.get()
            let lines = try await model.info.embeds ? search(model) : model.info.findsEntities ? find(model) : classify(model)
            result = lines.joined(separator: "\n")
        } catch {
            result = error.localizedDescription
        }
    }

    private func classify(_ model: any Model) async throws -> [String] {
        let percent = FloatingPointFormatStyle<Float>.Percent().precision(.fractionLength(1))
        let shares = try await model.classify(text)
        let answer = model.info.answer(shares).joined(separator: ", ")
        return [answer.isEmpty ? "none of these" : answer] + shares.map { "\($0.label) \($0.share.formatted(percent))" }
    }

    private func find(_ model: any Model) async throws -> [String] {
        let percent = FloatingPointFormatStyle<Double>.Percent().precision(.fractionLength(0))
        let text = self.text
        return try await model.entities(text).map { "\($0.label) \($0.score.formatted(percent)): \(text[$0.range])" }
    }

    private func search(_ model: any Model) async throws -> [String] {
        if index == nil { index = try await textIndex(of: model) }
        let vector = try await model.embed(text)
        let number = FloatingPointFormatStyle<Float>().precision(.fractionLength(2))
        return try index?.nearest(vector, count: 5).map { "\($0.cosine.formatted(number)) \($0.text)" } ?? []
    }
}
