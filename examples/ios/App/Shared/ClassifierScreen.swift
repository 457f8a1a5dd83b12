import SwiftUI

/// One screen: a text, a button, and the labels with their probabilities.
struct ClassifierScreen: View {
    let classifier: Result<any Classifier, any Error>
    @State private var text = ""
    @State private var result = ""

    var body: some View {
        Form {
            TextField("Text", text: $text, axis: .vertical)
            Button("Classify") { Task { await classify() } }
            Text(result)
        }
    }

    private func classify() async {
        do {
            let shares = try await classifier.get().classify(text)
            let percent = FloatingPointFormatStyle<Float>.Percent().precision(.fractionLength(1))
            result = shares.map { "\($0.label) \($0.share.formatted(percent))" }.joined(separator: "\n")
        } catch {
            result = error.localizedDescription
        }
    }
}
